// Whether all nodes of a communicator have a place for its operations on their GPUs. A node that
// lacked one would keep the kernels of the others waiting; and two communicators, each of which has
// its place on one node and waits for that of the other on the second, would wait for ever. So
// nothing is launched before each node has promised its place, which it then has until it ran.
//
//   The offer promises, where a place is free when all seats have called. Where all nodes could, an
//   operation waits for nothing more than the agreement.
//   `Placed` promises later: the operation has had to wait for others to end.
//   `Recall` asks back what is promised for operations that have not begun, because others wait for
//   the place; whoever hears it begins none of them before the next promise. It answers
//   `Recalled`, saying which it has begun. What one node has begun all will: the promise stands
//   for those, and is said once more. All else is free when all have answered.
//
// A place is asked back for anybody while the nodes still agree, which may last; and from an
// operation that was agreed on for an older one alone. How old it is all nodes know (turn_of() of
// OfferedData). So what waits for a place waits for what runs, or for what is older: there is no
// circle. What is narrow and alone in its queue is in nobody's way, and keeps its place, but for a
// communicator to come that wants its SMs for in-stream operations.
//
// Thread: the worker's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/comm/arrival_board.h"
#include "daemon/exec/gpu/launch_room.h"
#include "daemon/exec/net/links/links.h"
#include "daemon/exec/specs.h"
#include "proto/net/message.h"

namespace arcomm {

class NodePlaces {
 public:
  struct Parts {
    const CommunicatorSpec& spec;  // copied
    LaunchPlace& place;
    LaunchRoom& room;
    Links& links;
    std::function<bool()> is_in_queues;  // a kernel of it may be on the GPU
  };
  explicit NodePlaces(const Parts& parts);
  NodePlaces(const NodePlaces&) = delete;
  NodePlaces& operator=(const NodePlaces&) = delete;

  // ---- this node ----
  // `seq` is about to be offered, and needs so many blocks; 0: no place. Whether that is promised.
  bool offer(std::uint64_t seq, std::uint32_t blocks, bool is_oldest);
  // The nodes have agreed on it, and it is the next: it has its place, or takes it and says so.
  // False: it waits, or others do, and asks again.
  bool enter(std::uint64_t seq, std::uint32_t blocks);
  // enter() has said so, and all nodes have promised: it begins.
  bool may_begin(std::uint64_t seq) const;
  void begin(std::uint64_t seq) {
    begun_to_ = seq + 1;
    is_running_ = true;
  }
  // Nothing of it is on the GPU any more.
  void ended(std::uint64_t seq);
  // Nothing of the communicator will begin any more.
  void end();

  // Something is promised that has not begun, and can be asked back.
  bool may_recall() const {
    return awaited_ == 0 && place().is_promised && promised_[here_] > std::max(begun_to_, kept_to_);
  }
  void recall();
  // It has a place for operations of which none will come.
  bool is_forgotten(const ArrivalBoard& board) const;
  // Lets go of it. A node that owes an answer may have left in good order, and never answer.
  void give_up();

  // ---- other nodes ----
  void offer_came(std::uint32_t node, std::uint64_t seq, bool is_placed);
  // Placed, Recall or Recalled. An error is the node's fault.
  Status receive(std::uint32_t node, net::MessageKind kind, std::uint64_t seq);

  LaunchPlace& place() const { return place_; }

 private:
  static constexpr std::uint64_t bit(std::uint32_t node) { return std::uint64_t{1} << node; }
  void promise(std::uint64_t to);
  void leave();
  void all_have_answered();
  void tell(std::uint32_t node, net::MessageKind kind, std::uint64_t seq);
  void tell_all(net::MessageKind kind, std::uint64_t seq);

  LaunchPlace& place_;
  LaunchRoom& room_;
  Links& links_;
  const std::function<bool()> is_in_queues_;
  const std::vector<NodeSpec> nodes_;
  const std::uint32_t here_;
  net::FrameHeader names_;
  // Up to which seq, not included:
  std::vector<std::uint64_t> promised_;  // by node
  std::uint64_t offered_to_ = 0;         // here
  std::uint64_t begun_to_ = 0;           // here
  std::uint64_t kept_to_ = 0;            // begun by others, as they answered
  bool is_running_ = false;              // the last that has begun has not ended
  std::uint64_t awaited_ = 0;            // bit n: node n has not answered a Recall
};

}  // namespace arcomm
