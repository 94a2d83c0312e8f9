// How many lines a second somebody's failures may put into the log, and how many were left out.
// Keep one for each who could flood it, so that nobody's flood hides what happens to others.
// Thread: one at a time. Times are nanoseconds of a clock that does not go back.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace arcomm {

class LogBudget {
 public:
  static constexpr int kLinesPerSecond = 16;

  // Asks for one line. nullopt: it is left out, and counted. Otherwise so many were left out in
  // the seconds before, which is to be said first.
  std::optional<std::uint64_t> spend(std::uint64_t now_ns) {
    if (!is_same_second(now_ns)) {
      second_began_ns_ = now_ns;
      lines_ = 1;
      return std::exchange(left_out_, 0);
    }
    if (lines_ == kLinesPerSecond) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return 0;
  }

  // Left out and not yet said.
  std::uint64_t left_out() const { return left_out_; }
  // The same as a new one.
  bool is_idle(std::uint64_t now_ns) const { return left_out_ == 0 && !is_same_second(now_ns); }

 private:
  static constexpr std::uint64_t kSecondNs = 1'000'000'000;

  bool is_same_second(std::uint64_t now_ns) const {
    return lines_ != 0 && now_ns - second_began_ns_ < kSecondNs;
  }

  std::uint64_t second_began_ns_ = 0;
  std::uint64_t left_out_ = 0;
  int lines_ = 0;
};

}  // namespace arcomm
