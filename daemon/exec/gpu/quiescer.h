// Brings all GPUs of the worker to rest, so that memory may come and go: CUDA's calls for that wait
// for whatever runs or waits there. Thread: the worker's. Quiescing withdraws what was launched
// speculatively, waits until it has left (100 ms at most), and makes the resident grids leave
// (microseconds; seconds where a GPU hangs); the grids that ran come back afterwards.
#pragma once

#include <cstddef>
#include <vector>

#include "daemon/exec/gpu/deferred_release.h"
#include "daemon/exec/gpu/speculation/speculator.h"
#include "proto/status.h"

namespace arcomm {

class QuiesceGuard;

class Quiescer {
 public:
  Quiescer(std::vector<GpuEngine>& engines, const std::vector<GpuGroup*>& groups,
           Speculator& speculator, DeferredRelease& deferred)
      : engines_(engines), groups_(groups), speculator_(speculator), deferred_(deferred) {}

  // Acts while no grid runs and nothing waits for a client. What has been aborted has left then;
  // what all ranks have called may still run. What is deferred is released afterwards. Unavailable,
  // and nothing done, where the GPUs do not come to rest.
  template <typename Act>
  Status quiesced(Act act);

  // Lets go of what has been deferred for long enough.
  void tend(std::uint64_t now_ns);

 private:
  friend class QuiesceGuard;

  std::vector<GpuEngine>& engines_;
  const std::vector<GpuGroup*>& groups_;
  Speculator& speculator_;
  DeferredRelease& deferred_;
};

// While it lives, the GPUs are at rest, if its status says so.
class QuiesceGuard {
 public:
  explicit QuiesceGuard(Quiescer& quiescer);
  ~QuiesceGuard();
  QuiesceGuard(const QuiesceGuard&) = delete;
  QuiesceGuard& operator=(const QuiesceGuard&) = delete;

  const Status& status() const { return status_; }

 private:
  Status wait_for_queues();

  Quiescer& quiescer_;
  std::vector<GpuEngine*> stopped_;
  Status status_;
};

template <typename Act>
Status Quiescer::quiesced(Act act) {
  const QuiesceGuard guard(*this);
  if (guard.status()) act();
  return guard.status();
}

}  // namespace arcomm
