// Where the kind of hardware is chosen: CMake builds one backend_*.cc, and nothing else names a
// device class. Thread: called once by the daemon's main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/settings.h"
#include "proto/status.h"
#include "transport/device/device.h"

namespace arcomm {

struct ServedDevice {
  std::string name;  // what clients ask for: "host:0"
  std::unique_ptr<Device> device;
};

struct Backend {
  std::string name;                   // "host" or "cuda"
  std::vector<ServedDevice> devices;  // at least one; the first is the default
};

Result<Backend> open_backend(const Settings& settings);

}  // namespace arcomm
