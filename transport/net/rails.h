// Which interface of one daemon's is connected to which of another's, and how many streams each
// such rail carries. The daemon that is connected to decides, for it hands out the keys. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/net/addresses/interfaces.h"

namespace arcomm::net {

// One interface of the daemon that connects, as it tells of itself.
struct FarInterface {
  std::string host;
  std::uint32_t speed_mbits = 0;  // 0: not known
};

struct Rail {
  // What both sides and HelloKey call it. The daemon that connects finds its own end by it:
  // far_end_of().
  std::uint32_t number = 0;
  std::size_t here = 0, there = 0;  // indices
  double share = 0;                 // of the speed of all rails
};

// Every interface is in a rail, several where the other side has more; none where no two are of one
// family. Those of one network are paired, the others in their order.
std::vector<Rail> pair_rails(std::span<const Interface> here, std::span<const FarInterface> there);

// Which of its interfaces the connecting daemon takes, of as many as it told of.
inline std::size_t far_end_of(std::uint32_t rail, std::size_t interfaces) {
  return rail % interfaces;
}

// For each of `streams` streams the index of its rail, by the rails' shares. The first is of a
// fastest one; a rail that is too slow for any stream gets none. Precondition: there is a rail.
std::vector<std::size_t> deal_streams(std::span<const Rail> rails, std::size_t streams);

}  // namespace arcomm::net
