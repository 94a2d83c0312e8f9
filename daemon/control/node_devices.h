// The devices of this node and the workers that own them: what a client's name for a device means.
// Thread: the control loop. Does not change once the node serves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/session_ledger.h"
#include "daemon/exec/worker/device_worker.h"
#include "proto/status.h"

namespace arcomm {

struct WorkerRef {
  std::string device;              // "host:0"
  DeviceWorker* worker = nullptr;  // outlives the control plane
  FlightRecorder* recorder = nullptr;
  std::vector<std::string> gpus = {};  // "GPU-<uuid>", the default first; empty: a host worker
  std::optional<uid_t> only_uid = {};  // whom its MPS server serves; none: everybody
  std::vector<std::uint64_t> gpu_bytes = {};  // of each GPU's memory; 0, or missing: not known
};

class NodeDevices {
 public:
  explicit NodeDevices(std::vector<WorkerRef> workers) : workers_(std::move(workers)) {}

  struct Place {
    std::size_t worker = 0;
    std::string gpu;  // when one was named
  };
  // "" is the first worker; NotFound names what there is.
  Result<Place> find(const std::string& device) const;
  // The GPU that a call means: `named`, or the session's. "" on a host worker.
  Result<std::string> gpu_of(const SessionEntry& session, const std::string& named) const;
  // By name.
  std::map<std::string, std::uint64_t> memory_of_gpus() const;
  const std::vector<WorkerRef>& workers() const { return workers_; }

 private:
  std::vector<WorkerRef> workers_;
};

}  // namespace arcomm
