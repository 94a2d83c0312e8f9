// The device workers of the node: each with its thread, its flight recorder and the devices that it
// serves. Thread: the daemon's main thread; what is const may be called on any while they are open.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/node_devices.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/node_backend.h"
#include "daemon/stall_watch.h"
#include "daemon/telemetry/flight_recorder.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class Workers {
 public:
  struct Parts {
    std::shared_ptr<const Settings> settings;
    std::shared_ptr<const TuningTable> tuning;
    Metrics& metrics;
    std::function<WorkerEvents(std::size_t worker)> events;
  };
  struct Served {
    ServedDevices devices;
    std::unique_ptr<FlightRecorder> recorder;
    std::unique_ptr<DeviceWorker> worker;
    std::thread thread;
  };

  Workers() = default;
  ~Workers() { close(); }

  // All run when it returns without an error; after one, close().
  Status open(std::vector<ServedDevices> devices, const Parts& parts);
  // Fails what is open and joins the threads; what the workers hold stays until close().
  void stop();
  void close();

  const std::vector<Served>& all() const { return served_; }
  const Served& first() const { return served_.front(); }  // the default; of the GPUs, if any
  bool serve_gpus() const { return first().devices.on_gpus(); }
  Device& host_device() const;                // whose algorithms have a tuning table
  std::vector<WorkerRef> refs() const;        // for control
  int ended() const { return ended_.get(); }  // eventfd: a worker's run() returned
  void add_to(StallWatch& watch) const;

  void use_settings(const std::shared_ptr<const Settings>& settings) const;
  void use_tuning(const std::shared_ptr<const TuningTable>& tuning) const;
  void dump_recorders(const std::string& folder) const;
  // Lets operations in flight end, for `limit` at most. done: once, on a worker's thread, when the
  // last one has.
  void drain(std::chrono::milliseconds limit, std::function<void()> done) const;

 private:
  std::vector<Served> served_;
  UniqueFd ended_;
};

}  // namespace arcomm
