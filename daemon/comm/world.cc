#include "daemon/comm/world.h"

#include <algorithm>

namespace arcomm {

World World::of_one_node(std::size_t ranks) {
  return World(std::vector<std::uint32_t>(ranks, 0), 0, 1);
}

Result<World> World::create(std::span<const std::uint32_t> node_of_rank, std::uint32_t here) {
  const std::size_t ranks = node_of_rank.size();
  if (ranks == 0)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a world without ranks");
  // Bounded by the ranks before anything is counted: no node is without one.
  std::vector<bool> has_rank(ranks, false);
  std::uint32_t nodes = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t node = node_of_rank[rank];
    if (node >= ranks) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", rank, " is on node ",
                   node, " of ", ranks, " at most: nodes count from 0, and none is without a rank");
    }
    has_rank[node] = true;
    nodes = std::max(nodes, node + 1);
  }
  for (std::uint32_t node = 0; node < nodes; ++node) {
    if (has_rank[node]) continue;
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "node ", node, " of ", nodes,
                 " has no rank: nodes count from 0, and none is left out");
  }
  if (here >= nodes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "this node is said to be node ",
                 here, " of ", nodes);
  }
  return World(node_of_rank, here, nodes);
}

World::World(std::span<const std::uint32_t> node_of_rank, std::uint32_t here, std::uint32_t nodes)
    : nodes_(nodes), here_(here) {
  std::vector<std::uint32_t> counted(nodes, 0);  // by node: ranks so far
  places_.reserve(node_of_rank.size());
  for (const std::uint32_t node : node_of_rank) {
    const auto global = static_cast<Rank>(places_.size());
    places_.push_back({.node = node, .global = global, .local = counted[node]++});
    if (node == here) seated_.push_back(global);
  }
}

}  // namespace arcomm
