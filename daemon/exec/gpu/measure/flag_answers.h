// The CPU's side of an echo of flags (kernels/trial/flag_echo.h): answers what the kernel asks, and
// notes how long each answer took from the one before it, which is a flag's way there and back.
// Thread: the caller's, which it keeps busy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/specs.h"
#include "kernels/trial/flag_echo.h"

namespace arcomm {

class FlagAnswers {
 public:
  static constexpr std::uint64_t kWarmUp = 100;  // answers that do not count

  // times: that the kernel asks at most.
  explicit FlagAnswers(std::uint64_t times) { took_ns_.reserve(times); }

  // Until the kernel has ended, or `until_ns`. words: where to look, asked each time.
  template <typename Words>
  void answer(const Words& words, std::uint64_t until_ns) {
    for (std::uint32_t looks = 1;; ++looks) {
      FlagEchoWords& now = words();
      // Acquire and release pair with the kernel's.
      const std::uint64_t asked = __atomic_load_n(&now.asked, __ATOMIC_ACQUIRE);
      if (asked != answered_) {
        __atomic_store_n(&now.answered, asked, __ATOMIC_RELEASE);
        if (note(asked) >= until_ns) return;
      } else if (looks % kLooksAtClock == 0) {
        if (__atomic_load_n(&now.ended, __ATOMIC_ACQUIRE) != 0 || now_ns() >= until_ns) return;
      }
    }
  }

  // Nearest rank; no `times`: nothing came that counts.
  FlagEcho figures() {
    std::sort(took_ns_.begin(), took_ns_.end());
    if (took_ns_.empty()) return {};
    return {.p50_ns = percentile(50), .p99_ns = percentile(99), .times = took_ns_.size()};
  }

 private:
  static constexpr std::uint32_t kLooksAtClock = 64;

  // The clock is read while the answer is on its way.
  std::uint64_t note(std::uint64_t asked) {
    const std::uint64_t now = now_ns();
    if (answered_ >= kWarmUp) took_ns_.push_back(now - last_ns_);
    answered_ = asked;
    last_ns_ = now;
    return now;
  }
  std::uint64_t percentile(std::size_t percent) const {
    return took_ns_[(took_ns_.size() * percent + 99) / 100 - 1];
  }

  std::vector<std::uint64_t> took_ns_;
  std::uint64_t answered_ = 0, last_ns_ = 0;
};

}  // namespace arcomm
