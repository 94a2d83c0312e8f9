// Tiled operations on the host: jobs whose tiles are pulled by the worker and by the device's
// streams. Threads: everything is the worker's, except serve(), which the streams run. A job's
// memory is only touched between start() and finished(); the caller keeps it mapped until then.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/args.h"
#include "kernels/catalog.h"
#include "kernels/host/launch.h"
#include "proto/status.h"
#include "transport/device/stream.h"

namespace arcomm {

class Device;

struct TileJob {
  Choice choice;
  AllReduceArgs args;
  TileCursor cursor;
  bool taken = false;    // the worker's
  bool stopped = false;  // the worker's
  // A stream counts itself in, looks whether the job is open, and counts itself out: a job is used
  // again only when it is closed and nobody is counted in.
  alignas(64) std::atomic<std::uint32_t> users{0};
  std::atomic<bool> open{false};
  std::atomic<std::uint64_t> tiles_run{0};

  // One tile on the calling thread, if one is left.
  bool pull() {
    if (!cursor.pull(choice, args)) return false;
    tiles_run.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
};

class HostLauncher {
 public:
  static constexpr std::size_t kMaxJobs = 32;

  // `threads` pull tiles, the worker included: one fewer streams are made.
  static Result<std::unique_ptr<HostLauncher>> create(Device& device, std::uint32_t threads);
  ~HostLauncher();  // every job has ended; waits until the streams have left
  HostLauncher(const HostLauncher&) = delete;
  HostLauncher& operator=(const HostLauncher&) = delete;

  std::uint32_t threads() const { return static_cast<std::uint32_t>(crew_.size()) + 1; }

  // Null when all jobs are taken: ask again later.
  TileJob* start(const Choice& choice, const AllReduceArgs& args);
  // Runs one tile on this thread, if one is left.
  bool work(TileJob& job) { return job.pull(); }
  // No further tile is started.
  void stop(TileJob& job);
  // Nobody touches its memory any more.
  bool finished(const TileJob& job) const { return job.cursor.finished(); }
  // After finished(): is every rank's result complete? May say no for one that was stopped in its
  // last moment.
  bool whole(const TileJob& job) const {
    return !job.stopped || job.tiles_run.load(std::memory_order_relaxed) == job.cursor.tiles();
  }
  // After finished(): the job may be used for another operation.
  void release(TileJob& job);

 private:
  // One stream's side.
  struct alignas(64) Hand {
    HostLauncher* launcher = nullptr;
    std::atomic<bool> serving{false};
    Stream stream;
  };

  HostLauncher() = default;
  void call_hands(std::uint32_t wanted);
  static void serve(void* hand);
  bool serve_once(std::size_t& next_job);

  std::array<TileJob, kMaxJobs> jobs_;
  std::atomic<std::uint64_t> starts_{0};  // tells a hand that is about to leave that there is more
  std::vector<std::unique_ptr<Hand>> crew_;
};

}  // namespace arcomm
