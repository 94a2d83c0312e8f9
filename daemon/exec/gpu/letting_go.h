// Whether memory of GPUs may be let go of, as looks at it find: what is in the way and passes by
// itself does so within milliseconds, and other work's kernels when it pleases them. Thread: the
// worker's.
#pragma once

#include <cstdint>

namespace arcomm {

enum class LettingGo : std::uint8_t { May, NotYet, Blocked };

class LettingGoLooks {
 public:
  LettingGo look(bool may, std::uint64_t now_ns) {
    if (may) {
      blocked_ns_ = 0;
      return LettingGo::May;
    }
    if (blocked_ns_ == 0 || now_ns >= looked_ns_ + kForgetLookNs) blocked_ns_ = now_ns;
    looked_ns_ = now_ns;
    return now_ns >= blocked_ns_ + kPassesNs ? LettingGo::Blocked : LettingGo::NotYet;
  }

 private:
  // Longer than what ends by itself takes: an echo, a grid that leaves, a kernel that clears.
  static constexpr std::uint64_t kPassesNs = 25'000'000;
  // Looks that far apart tell nothing of the time between them.
  static constexpr std::uint64_t kForgetLookNs = 200'000'000;

  std::uint64_t blocked_ns_ = 0;  // since when it may not; 0: it may
  std::uint64_t looked_ns_ = 0;   // the last look that found it so
};

}  // namespace arcomm
