// All ranks of a communicator, and where each is: the same on all of its nodes. A value, never
// changed once it is made; any thread may read it.
//
// Three numbers of a rank: its node, its global rank (what the API calls its rank), and its local
// rank, which counts the ranks of its node in the order of their global ones. Those of this node
// sit at its seats, one by one: the local rank is the seat's number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

struct Place {
  std::uint32_t node = 0;
  Rank global = 0;
  std::uint32_t local = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

class World {
 public:
  static World of_one_node(std::size_t ranks);
  // The node of each rank, by global rank; nodes count from 0 with none left out. `here` is this
  // one. InvalidArgument where that is not so: the numbers may be another node's word.
  static Result<World> create(std::span<const std::uint32_t> node_of_rank, std::uint32_t here);

  std::size_t size() const { return places_.size(); }
  std::uint32_t nodes() const { return nodes_; }
  bool is_one_node() const { return nodes_ == 1; }
  std::uint32_t here() const { return here_; }
  const Place& place(Rank global) const { return places_[static_cast<std::size_t>(global)]; }
  bool is_here(Rank global) const { return place(global).node == here_; }
  // Global ranks of this node, by seat.
  const std::vector<Rank>& seated() const { return seated_; }
  friend bool operator==(const World&, const World&) = default;

 private:
  World(std::span<const std::uint32_t> node_of_rank, std::uint32_t here, std::uint32_t nodes);

  std::vector<Place> places_;  // by global rank
  std::vector<Rank> seated_;
  std::uint32_t nodes_ = 1, here_ = 0;
};

}  // namespace arcomm
