// The build without CUDA: one device, the CPU.
#include "daemon/exec/host/host_backend.h"
#include "daemon/mps_server.h"
#include "daemon/node_backend.h"
#include "transport/device/host/host_device.h"

namespace arcomm {

void prepare_environment(const Settings&) {}

Result<NodeBackend> open_backend(const Settings& settings) {
  switch (settings.device.backend) {
    case BackendChoice::Auto:
    case BackendChoice::Host:
      break;
    case BackendChoice::Cuda:
      return error(ErrorCode::Unimplemented, Reason::Unsupported,
                   "device.backend is \"cuda\" and this arcommd was built without CUDA: set it to "
                   "\"host\" or \"auto\", "
                   "or install a CUDA build");
  }
  Result<std::unique_ptr<HostDevice>> device = HostDevice::create(HostDeviceOptions{});
  if (!device) return std::move(device).error();
  NodeBackend backend;
  backend.name = "host";
  backend.workers.push_back({.name = "host:0", .devices = {}, .open = host_backend_on(**device)});
  backend.workers.back().devices.push_back(std::move(device).value());
  return backend;
}

}  // namespace arcomm
