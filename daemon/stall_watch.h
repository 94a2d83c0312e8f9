// Whether the threads that serve others still turn, the workers, the control loop and gRPC's: what
// the watchdog's pings are tied to. One whose progress stands still is nudged, by a message; one
// that does not handle it for `stall` is stuck, however seldom somebody looks. Thread: the daemon's
// main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/exec/worker/device_worker.h"

namespace arcomm {

class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `what` is said of it: "the control loop". Handling a nudge is progress.
  void add(std::string what, std::function<std::uint64_t()> progress, std::function<void()> nudge,
           Clock::time_point now) {
    watched_.push_back({std::move(what), std::move(progress), std::move(nudge), 0, now, false});
  }
  void add(const std::string& device, DeviceWorker& worker, Clock::time_point now) {
    add(
        "the worker of " + device, [&worker] { return worker.progress(); },
        [&worker] { worker.inspect([](const Result<WorkerSnapshot>&) {}); }, now);
  }

  // The first that has been stuck for longer than `stall`, or "". Call it several times within
  // `stall`.
  std::string find_stuck(Clock::time_point now, std::chrono::milliseconds stall) {
    std::string stuck;
    for (Watched& one : watched_) {
      if (const std::uint64_t progress = one.progress(); progress != one.seen) {
        one.seen = progress;
        one.is_asked = false;
        continue;
      }
      one.nudge();  // idle or stuck
      if (!std::exchange(one.is_asked, true)) one.asked = now;
      if (now - one.asked > stall && stuck.empty()) stuck = one.what;
    }
    return stuck;
  }

 private:
  struct Watched {
    std::string what;
    std::function<std::uint64_t()> progress;
    std::function<void()> nudge;
    std::uint64_t seen;
    Clock::time_point asked;
    bool is_asked;  // since then nothing moved
  };
  std::vector<Watched> watched_;
};

}  // namespace arcomm
