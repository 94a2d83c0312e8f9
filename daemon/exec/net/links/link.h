// The connections of this worker to the worker of the same name of one peer: stream 0, which the
// worker drives itself, with the messages that wait to leave, and the bulk streams, each with a
// thread or driven by the worker, too. Thread: the worker's, until it is given to a disposer;
// `on_news` is called by the streams' threads. Never blocks, but for its destructor: up to a tenth
// of a second for each stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/exec/snapshots.h"
#include "daemon/exec/specs.h"
#include "proto/net/message.h"
#include "transport/net/streams/bulk_streams.h"
#include "transport/net/streams/driven_streams.h"

namespace arcomm {

class Link final : private net::Receiver {
 public:
  // Messages that have not left. Above the first, what can wait should (has_room()); at the second
  // the peer does not read any more, and the link has failed.
  static constexpr std::size_t kRoomBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostUnsentBytes = std::size_t{16} << 20;

  class Listener {
   public:
    virtual ~Listener() = default;
    // From inside of progress(). It may send, but not end the link; an error ends it.
    virtual Status message_came(Link& from, const net::FrameHeader& names,
                                const net::Message& message) = 0;
  };

  // Errors: what is missing in the spec.
  static Result<std::unique_ptr<Link>> create(LinkSpec spec, Listener& listener,
                                              std::function<void()> on_news);
  ~Link() override;

  // The bulk streams' threads begin. Errors: no thread, no such CPU; those that have begun are then
  // the destructor's.
  Status start();

  PeerId peer() const { return spec_.peer; }
  const std::string& name() const { return spec_.name; }  // of the node
  const std::shared_ptr<net::Regions>& regions() const { return spec_.regions; }
  // Of the streams that the worker drives, to sleep on; -1: polling is all.
  std::vector<int> descriptors() const;

  // Copied; it leaves with progress(), in order. Nothing once the link has failed.
  void send(net::MessageKind kind, const net::FrameHeader& names,
            std::initializer_list<std::span<const std::byte>> parts);
  bool has_room() const { return unsent_bytes_ < kRoomBytes; }
  std::size_t unsent_bytes() const { return unsent_bytes_; }
  // As Links::post.
  net::Progress post(const net::Frame& frame, net::OnLoan& on_loan);

  LinkSnapshot snapshot() const;

  // Payloads are on their way over streams that the worker drives.
  bool is_sending() const {
    return unsent_bytes_ > 0 || !loaned_.empty() || (driven_ && driven_->is_sending());
  }

  // Sends and receives on the worker's streams what can be now. Whether anything moved.
  bool progress();
  bool has_failed() const { return failure_.has_value(); }
  const std::optional<Error>& failure() const { return failure_; }
  // It ends, for this reason, of which the peer is told as far as it still listens.
  void fail(Error why);

 private:
  struct Unsent {
    net::FrameHeader names;
    std::vector<std::byte> bytes;
    net::Transfer transfer = 0;  // 0: not posted yet
  };
  struct Loaned {
    net::Transfer transfer = 0;
    net::OnLoan* on_loan = nullptr;
  };
  // Puts and signals do not come here, and nothing else goes over bulk streams.
  class BulkReceiver final : public net::Receiver {
   public:
    Result<std::byte*> place(const net::FrameHeader& header) override;
    Status arrived(const net::FrameHeader&, std::span<const std::byte>) override { return {}; }
    void abandoned(const net::FrameHeader&) override {}
  };

  Link(LinkSpec spec, Listener& listener, std::function<void()> on_news);
  Result<std::byte*> place(const net::FrameHeader& header) override;
  Status arrived(const net::FrameHeader& header, std::span<const std::byte> payload) override;
  void abandoned(const net::FrameHeader&) override {}
  net::Progress post_on_messages(const net::Frame& frame, net::OnLoan& on_loan);
  bool post_unsent();
  bool give_back_sent();
  void say_goodbye();

  LinkSpec spec_;  // its bulk connections are moved to bulk_
  Listener& listener_;
  std::vector<std::byte> arriving_;  // one message
  std::deque<Unsent> unsent_;        // the first posted_ of them wait in the connection
  std::size_t posted_ = 0, unsent_bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_;
  std::deque<Loaned> loaned_;  // frames that went over stream 0
  std::optional<Error> failure_;
  BulkReceiver bulk_receiver_;
  std::optional<net::DrivenStreams> driven_;  // one of the two
  std::optional<net::BulkStreams> bulk_;      // last: its threads end first
};

}  // namespace arcomm
