// A run of a ProxyWorld in an order of turns that a seed decides: blocks, engines and links move
// one at a time, some of them seldom, and one fault happens when the plan says. Virtual time; the
// same plan gives the same run, to the byte.
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/daemon/proxy/proxy_world.h"

namespace arcomm::proxy {

enum class Fault : std::uint8_t {
  None,
  Abort,       // a node's group is failed from outside
  Cut,         // a link is lost
  Frozen,      // a node's proxy stands still for good
  DeadBlock,   // a block of a kernel stands still for good
  Garbage,     // a stray store into the words of a FIFO that a kernel writes
  ShortChunk,  // a chunk arrives without its last byte
};
inline constexpr unsigned kFaults = 7;

struct SchedulePlan {
  std::uint64_t seed = 1;
  WorldPlan world;
  Fault fault = Fault::None;
  std::uint64_t fault_turn = 0;

  static SchedulePlan draw(std::uint64_t seed);
  // Numbers in the order of the members, which read() takes: to run one again.
  std::string text() const;
  static SchedulePlan read(const std::string& text);
};

struct Outcome {
  std::string wrong;  // empty: all that must hold held
  std::uint64_t turns = 0;
  std::uint32_t succeeded = 0, failed = 0;  // operations, over all nodes
};

Outcome run_schedule(const SchedulePlan& plan);
// The smallest plan found that still goes wrong.
SchedulePlan shrink(SchedulePlan plan);

}  // namespace arcomm::proxy
