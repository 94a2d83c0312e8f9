// Where the kind of hardware is chosen: CMake builds one backend_*.cc, and nothing else names a
// device class. Thread: called by the daemon's main thread, each once.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/exec/open_backend.h"
#include "daemon/mps_server.h"
#include "proto/status.h"
#include "transport/device/device.h"

namespace arcomm {

// What one device worker serves.
struct ServedDevices {
  std::string name;  // what clients ask for: "host:0", "gpu"
  // The host's one, or all GPUs of the node: one worker for all, so that one arrival board and one
  // launcher order serve a communicator.
  std::vector<std::unique_ptr<Device>> devices;
  OpenBackend open = nullptr;          // what drives them; never empty
  std::optional<uid_t> only_uid = {};  // the one user whom the MPS server that we manage serves

  bool on_gpus() const { return devices.front()->kind() == DeviceKind::Cuda; }
};

struct NodeBackend {
  std::string name;                    // "host", or "cuda: 2 x NVIDIA H200, NVLink, MPS"
  std::vector<std::string> notes;      // for the log: which GPUs, or why none
  std::vector<std::string> warnings;   // for the log and arctl status
  std::string degraded;                // "" or why this is less than what was asked for
  std::unique_ptr<MpsServer> mps;      // where gpu.mps is "manage"
  std::vector<ServedDevices> workers;  // at least one; the first is the default. They go first
};

// What the hardware's library reads from this process's environment. Before any other thread.
void prepare_environment(const Settings& settings);

// GPUs where the settings, this build and the machine have them, and the host always. An error
// where GPUs were demanded.
Result<NodeBackend> open_backend(const Settings& settings);

}  // namespace arcomm
