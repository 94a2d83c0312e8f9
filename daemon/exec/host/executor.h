// Runs planned operations on the device. Small ones run at once on the worker's thread; large ones
// are cut into tiles that the device's streams and the worker pull, so that the worker comes back
// to its rings between two tiles. Thread: the worker's; the streams' side is in HostLauncher. Never
// blocks, except in drain().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/host/host_launcher.h"
#include "daemon/plan/device_shape.h"
#include "daemon/plan/planner.h"
#include "daemon/plan/tuning_table.h"

namespace arcomm {

class Device;

class Executor {
 public:
  // `threads` pull tiles, the caller's included; 0: one per core that this process may use.
  static Result<std::unique_ptr<Executor>> create(Device& device, std::uint64_t threads,
                                                  CommunicatorTable& communicators,
                                                  std::shared_ptr<const TuningTable> tuning);
  ~Executor() { drain(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void use_tuning(std::shared_ptr<const TuningTable> tuning) { tuning_ = std::move(tuning); }
  // Starts one operation that may run; one on small data has then ended. Returns whether there was
  // any.
  bool start_next();
  // One tile, of each operation in flight in turn: who calls meanwhile waits for no more. Returns
  // whether there was any.
  bool work();
  // Takes back what has ended. Returns whether there was any.
  bool reap();
  // The communicator's running operation ends as soon as no stream touches its memory; then reap()
  // reports it.
  void stop(const Communicator& communicator);
  // Waits until nothing runs. Everything has been stopped before.
  void drain();
  bool idle() const { return running_.empty() && backlog_.empty(); }

 private:
  struct Run {
    Communicator* communicator = nullptr;
    TileJob* job = nullptr;
  };

  Executor(std::unique_ptr<HostLauncher> launcher, DeviceShape shape,
           CommunicatorTable& communicators, std::shared_ptr<const TuningTable> tuning);
  // False when it must wait for a free job.
  bool start(Communicator& communicator);

  CommunicatorTable& communicators_;
  std::shared_ptr<const TuningTable> tuning_;
  DeviceShape shape_;
  std::vector<Run> running_;
  std::size_t worked_last_ = 0;
  std::vector<Communicator*> backlog_;      // wait for a free job, oldest first
  AllReduceArgs args_;                      // of the operation that is being started
  std::unique_ptr<HostLauncher> launcher_;  // last: its streams leave before the rest goes
};

}  // namespace arcomm
