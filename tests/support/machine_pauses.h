// What the machine itself takes from threads, so that a test which bounds how long something takes
// fails of that alone: a shared machine may stop any thread for 100 ms. Any thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace arcomm::test {

class MachinePauses {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;

  MachinePauses() : began_(Clock::now()), witness_([this] { watch(); }) {}
  ~MachinePauses() {
    stop_ = true;
    witness_.join();
  }
  MachinePauses(const MachinePauses&) = delete;
  MachinePauses& operator=(const MachinePauses&) = delete;

  double age_ms() const { return Milliseconds(Clock::now() - began_).count(); }
  // The most that whatever thread `tid` of this process does may have been held up since it began:
  // all that it waited for a core (proc(5), schedstat), and twice the longest that a thread which
  // only sleeps was late, which shows what Linux cannot count: a machine that stands still.
  double most_ms(pid_t tid = ::gettid()) const {
    std::ifstream counts("/proc/self/task/" + std::to_string(tid) + "/schedstat");
    std::uint64_t ran_ns = 0, waited_ns = 0;
    if (!(counts >> ran_ns >> waited_ns)) waited_ns = 0;
    return static_cast<double>(waited_ns) / 1e6 + 2 * longest_ms_;
  }

 private:
  void watch() {
    while (!stop_) {
      const Clock::time_point since = Clock::now();
      std::this_thread::sleep_for(kNap);
      const double late_ms = Milliseconds(Clock::now() - since - kNap).count();
      longest_ms_ = std::max(longest_ms_.load(), late_ms);
    }
  }

  static constexpr auto kNap = std::chrono::milliseconds(1);

  const Clock::time_point began_;
  std::atomic<bool> stop_{false};
  std::atomic<double> longest_ms_{0};
  std::thread witness_;  // last: it uses the others
};

}  // namespace arcomm::test
