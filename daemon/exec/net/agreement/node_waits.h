// What the nodes of one communicator have said last of their ranks that wait: at which operation,
// which of them have called it, and by which process. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/comm/world.h"
#include "daemon/exec/specs.h"
#include "proto/status.h"

namespace arcomm {

class NodeWaits {
 public:
  struct OfNode {
    std::optional<std::uint64_t> seq;  // none: it has said nothing
    std::uint64_t called = 0, heard_ns = 0;
    std::vector<std::int32_t> pids;  // by seat
  };

  // Both outlive this.
  NodeWaits(const World& world, const std::vector<NodeSpec>& nodes)
      : world_(world), nodes_(nodes), by_node_(nodes.size()) {}

  // The body of a message of the kind Waiting; an error is the node's fault.
  Status take(std::uint32_t node, std::uint64_t seq, std::span<const std::byte> body,
              std::uint64_t now_ns);
  std::span<const OfNode> by_node() const { return by_node_; }

  bool has_called(Rank rank, std::uint64_t seq) const;
  // Where the rank waits, as it was said: that may have ended since.
  std::optional<std::uint64_t> waits_at(Rank rank) const;
  pid_t pid(Rank rank) const;  // 0: not known

 private:
  const OfNode& of(Rank rank) const { return by_node_[world_.place(rank).node]; }

  const World& world_;
  const std::vector<NodeSpec>& nodes_;
  std::vector<OfNode> by_node_;
};

}  // namespace arcomm
