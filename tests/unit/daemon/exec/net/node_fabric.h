// A network between nodes of one process, for tests: each frame goes its way in steps of its own,
// in any order, and every step is a moment at which something else may happen. Thread: any; frames
// are moved by whoever calls step().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "daemon/exec/net/links/links.h"
#include "transport/net/regions.h"

namespace arcomm {

class NodeFabric {
 public:
  // A message has arrived, on the thread that called step() or deliver_messages().
  using Deliver = std::function<void(std::uint32_t to, std::uint32_t from, net::MessageKind kind,
                                     const net::FrameHeader& names, std::vector<std::byte> body)>;

  NodeFabric(std::uint32_t nodes, Deliver deliver);
  ~NodeFabric();

  static PeerId peer_of(std::uint32_t node) { return 1000 + node; }
  Links& links(std::uint32_t node);

  // One step of one frame; false: nothing is under way. Messages are left alone.
  bool step(std::mt19937& random);
  // One message; false: none waits.
  bool deliver_message(std::mt19937& random);
  bool is_quiet() const;

  // What is under way from `from` to `to` stays where it is until thawed.
  void freeze(std::uint32_t from, std::uint32_t to);
  void thaw(std::uint32_t from, std::uint32_t to);
  // Links look as if other communicators' payloads moved on them.
  void let_others_move() { others_move_ = true; }
  void cut(std::uint32_t from, std::uint32_t to);  // it ends, and everything is given back
  // The next frame that lands of this kind is damaged.
  void damage_next() { damages_next_ = true; }
  void refuse_posts(bool refused) { refuses_ = refused; }
  const std::set<std::pair<std::uint32_t, std::uint32_t>>& severed() const { return severed_; }

 private:
  class NodeLinks;
  enum class Stage : std::uint8_t { Posted, OnTheWire, Landing };
  struct Flight {
    std::uint32_t from = 0, to = 0;
    net::Frame frame;
    net::OnLoan* on_loan = nullptr;
    Stage stage = Stage::Posted;
    std::vector<std::byte> wire;
    net::Regions::Visit visit;
  };
  struct Message {
    std::uint32_t from = 0, to = 0;
    net::MessageKind kind = net::MessageKind::Window;
    net::FrameHeader names;
    std::vector<std::byte> body;
  };
  using Way = std::pair<std::uint32_t, std::uint32_t>;

  net::Progress post(std::uint32_t from, std::uint32_t to, const net::Frame& frame,
                     net::OnLoan& on_loan);
  bool move(Flight& flight);  // false: it is there
  static void give_back(Flight& flight);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<NodeLinks>> links_;
  std::vector<std::unique_ptr<net::Regions>> regions_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Message> messages_;
  std::set<Way> frozen_, cut_, severed_;
  Deliver deliver_;
  std::atomic<bool> damages_next_{false};
  bool refuses_ = false, others_move_ = false;
  std::size_t moving_ = 0;
};

}  // namespace arcomm
