// Whether the workers still turn: what the watchdog's pings are tied to. A worker whose progress
// stands still is sent a message; one that neither moves nor handles it for `stall` is stuck.
// Thread: the daemon's main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/exec/worker/device_worker.h"

namespace arcomm {

class WorkerWatch {
 public:
  using Clock = std::chrono::steady_clock;

  void add(std::string device, DeviceWorker& worker, Clock::time_point now) {
    watched_.push_back({std::move(device), &worker, 0, now});
  }

  // The first worker that has been stuck for longer than `stall`, or "". Call it several times
  // within `stall`.
  std::string find_stuck(Clock::time_point now, std::chrono::milliseconds stall) {
    std::string stuck;
    for (Watched& one : watched_) {
      if (const std::uint64_t progress = one.worker->progress(); progress != one.progress) {
        one.progress = progress;
        one.moved = now;
        continue;
      }
      // Idle or stuck: handling a message is progress.
      one.worker->inspect([](const Result<WorkerSnapshot>&) {});
      if (now - one.moved > stall && stuck.empty()) stuck = one.device;
    }
    return stuck;
  }

 private:
  struct Watched {
    std::string device;
    DeviceWorker* worker;
    std::uint64_t progress;
    Clock::time_point moved;
  };
  std::vector<Watched> watched_;
};

}  // namespace arcomm
