// How long the worker waits in one turn of its loop, all in all, for what takes a GPU microseconds
// where nothing holds it up: grids that leave, queues that empty, words that arrive. The time
// begins with the turn's first wait. A wait that begins after the budget is spent looks once and
// returns; the next turn has a budget of its own. Thread: the worker's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace arcomm {

class TurnBudget {
 public:
  static constexpr std::uint64_t kNs = 30'000'000;

  void begin_turn() { over_ns_ = 0; }
  // When a wait of at most so long that begins now is to end.
  std::uint64_t until_ns(std::uint64_t now_ns, std::uint64_t most_ns) {
    if (over_ns_ == 0) over_ns_ = now_ns + kNs;
    return std::clamp(over_ns_, now_ns, now_ns + most_ns);
  }
  std::chrono::nanoseconds left(std::uint64_t now_ns, std::uint64_t most_ns) {
    return std::chrono::nanoseconds(until_ns(now_ns, most_ns) - now_ns);
  }

 private:
  std::uint64_t over_ns_ = 0;  // 0: nothing has been waited for in this turn
};

}  // namespace arcomm
