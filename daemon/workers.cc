#include "daemon/workers.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/peers/peers.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

Status Workers::open(std::vector<ServedDevices> devices, const Parts& parts) {
  ended_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended_) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot make an eventfd: ", std::strerror(errno));
  }
  const auto records = static_cast<std::size_t>(parts.settings->recorder.records);
  const bool has_peers = Peers::are_wanted(*parts.settings);
  for (ServedDevices& served : devices) {
    Result<std::unique_ptr<FlightRecorder>> recorder =
        FlightRecorder::create(records, has_peers ? records : 0);
    if (!recorder) return recorder.error();
    Result<std::unique_ptr<DeviceWorker>> worker =
        DeviceWorker::create({.device = served.devices.front()->name(),
                              .open_backend = served.open,
                              .recorder = **recorder,
                              .metrics = parts.metrics,
                              .settings = parts.settings,
                              .tuning = parts.tuning,
                              .events = parts.events(served_.size())});
    if (!worker) return worker.error();
    served_.push_back(
        {std::move(served), std::move(recorder).value(), std::move(worker).value(), {}});
  }
  for (Served& one : served_) {
    one.thread = std::thread([worker = one.worker.get(), ended = ended_.get()] {
      ::pthread_setname_np(::pthread_self(), "arc-worker");
      worker->run();
      const std::uint64_t once = 1;
      (void)!::write(ended, &once, sizeof(once));
    });
  }
  return {};
}

void Workers::stop() {
  for (Served& one : served_) one.worker->stop();
  for (Served& one : served_) {
    if (one.thread.joinable()) one.thread.join();
  }
}

void Workers::close() {
  stop();
  served_.clear();
}

Device& Workers::host_device() const {
  return *served_.back().devices.devices.front();  // the host's worker comes last
}

std::vector<WorkerRef> Workers::refs() const {
  std::vector<WorkerRef> refs;
  for (const Served& one : served_) {
    WorkerRef ref{.device = one.devices.name,
                  .worker = one.worker.get(),
                  .recorder = one.recorder.get(),
                  .only_uid = one.devices.only_uid};
    if (one.devices.on_gpus()) {
      for (const std::unique_ptr<Device>& device : one.devices.devices) {
        ref.gpus.push_back(device->name());
        ref.gpu_bytes.push_back(device->memory_bytes());
      }
    }
    refs.push_back(std::move(ref));
  }
  return refs;
}

void Workers::add_to(StallWatch& watch) const {
  for (const Served& one : served_)
    watch.add(one.devices.name, *one.worker, std::chrono::steady_clock::now());
}

void Workers::use_settings(const std::shared_ptr<const Settings>& settings) const {
  for (const Served& one : served_) one.worker->use_settings(settings);
}

void Workers::use_tuning(const std::shared_ptr<const TuningTable>& tuning) const {
  for (const Served& one : served_) one.worker->use_tuning(tuning);
}

void Workers::dump_recorders(const std::string& folder) const {
  for (const Served& one : served_) {
    const Result<std::string> path = one.recorder->dump_to(folder);
    if (path) {
      log::info("flight recorder of {} written to {}", one.devices.name, *path);
    } else {
      log::error("flight recorder of {} not written: {}", one.devices.name, path.error().message);
    }
  }
}

void Workers::drain(std::chrono::milliseconds limit, std::function<void()> done) const {
  struct Drained {
    Drained(std::size_t workers, std::function<void()> then)
        : missing(workers), done(std::move(then)) {}

    std::atomic<std::size_t> missing;
    std::function<void()> done;
  };
  const auto drained = std::make_shared<Drained>(served_.size(), std::move(done));
  for (const Served& one : served_) {
    one.worker->drain(limit, [drained](const Status&) {
      if (drained->missing.fetch_sub(1) == 1) drained->done();
    });
  }
}

}  // namespace arcomm
