#include "daemon/comm/world.h"

namespace arcomm {

World World::of_one_node(std::size_t ranks) {
  return World(std::vector<std::uint32_t>(ranks, 0), 0);
}

World::World(std::span<const std::uint32_t> node_of_rank, std::uint32_t here) : here_(here) {
  std::vector<std::uint32_t> counted(1, 0);  // by node: ranks so far
  places_.reserve(node_of_rank.size());
  for (const std::uint32_t node : node_of_rank) {
    if (node >= counted.size()) counted.resize(node + 1, 0);
    const auto global = static_cast<Rank>(places_.size());
    places_.push_back({.node = node, .global = global, .local = counted[node]++});
    if (node == here) seated_.push_back(global);
  }
  nodes_ = static_cast<std::uint32_t>(counted.size());
}

}  // namespace arcomm
