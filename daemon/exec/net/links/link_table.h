// All links of one worker, by peer. One that fails is told to the listener in poll(), and let go of
// by a thread of its own, since its streams take a moment to end. Thread: the worker's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "daemon/exec/net/links/link.h"
#include "daemon/exec/net/links/links.h"

namespace arcomm {

class LinkTable final : public Links {
 public:
  class Listener : public Link::Listener {
   public:
    // It is not in the table any more. From inside of poll().
    virtual void link_ended(PeerId peer, const std::string& name, const Error& why) = 0;
  };

  // on_news: called by the streams' threads, see BulkStreams.
  LinkTable(Listener& listener, std::function<void()> on_news)
      : listener_(listener), on_news_(std::move(on_news)) {}
  // Waits for the streams' ends.
  ~LinkTable() override;
  LinkTable(const LinkTable&) = delete;
  LinkTable& operator=(const LinkTable&) = delete;

  // AlreadyExists where there is one to this peer; else as Link::create and Link::start. What to
  // sleep on, and to forget when it closes.
  Result<std::vector<int>> open(LinkSpec spec);
  // Not told to the listener. False: there is none.
  bool close(PeerId peer, const Error& why);
  // Ends all, and tells nobody here; peers are told why. Returns at once.
  void close_all(const Error& why);

  // No link is there, and of none that was a thread is left.
  bool is_over() {
    join_disposed();
    return links_.empty() && disposals_.empty();
  }

  // Moves what can be moved, and ends what has failed. Whether there was anything.
  bool poll();
  // Whether poll() must be called to see what comes: some descriptor cannot be slept on.
  bool must_be_polled() const { return must_be_polled_; }
  // Something is waiting to leave on a stream that the worker drives.
  bool is_sending() const;

  bool empty() const { return links_.empty(); }
  std::size_t size() const { return links_.size(); }
  const Link* find(PeerId peer) const;
  std::vector<LinkSnapshot> snapshots() const;
  // No more than a little waits for this peer; true where there is no link.
  bool has_room(PeerId peer) const;
  // It ends with the next poll(): a fault that shows later than in the call of the listener.
  void fail(PeerId peer, Error why);

  void send(PeerId peer, net::MessageKind kind, const net::FrameHeader& names,
            std::initializer_list<std::span<const std::byte>> parts) override;
  net::Progress post(PeerId peer, const net::Frame& frame, net::OnLoan& on_loan) override;
  void sever(PeerId peer, const Error& why) override { fail(peer, why); }
  std::uint64_t moved_bytes(PeerId peer) const override;
  net::Regions* regions() override { return regions_.get(); }

 private:
  struct Disposal {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_over;
  };

  Link* at(PeerId peer);
  std::unique_ptr<Link> take(std::size_t index);
  void dispose(std::unique_ptr<Link> link);
  void join_disposed();

  Listener& listener_;
  const std::function<void()> on_news_;
  std::vector<std::unique_ptr<Link>> links_;
  std::shared_ptr<net::Regions> regions_;
  std::vector<Disposal> disposals_;
  bool must_be_polled_ = false;
};

}  // namespace arcomm
