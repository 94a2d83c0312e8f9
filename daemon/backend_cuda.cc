// The build with CUDA: the node's GPUs, where it has any, and the CPU.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/exec/gpu/gpu_backend.h"
#include "daemon/exec/host/host_backend.h"
#include "daemon/mps_server.h"
#include "daemon/node_backend.h"
#include "transport/device/cuda/cuda_device.h"
#include "transport/device/host/host_device.h"
#include "transport/topology/gpus.h"

namespace arcomm {
namespace {

// As long as a tenth of the unit's StartLimitIntervalSec=: starts that fail for this never come to
// its StartLimitBurst=.
constexpr std::chrono::seconds kMpsRecovers{6};
constexpr std::chrono::milliseconds kBetweenLooks{100};

// MPS recovers from a fault.
bool gets_better(const Error& why) {
  return why.reason == Reason::NotRunning;
}

bool may_use_gpus(const Settings& settings) {
  switch (settings.device.backend) {
    case BackendChoice::Auto:
    case BackendChoice::Cuda:
      return true;
    case BackendChoice::Host:
      return false;
  }
  return false;
}

void note_mps(const std::vector<Gpu>& gpus, MpsChoice choice, NodeBackend& backend) {
  bool everywhere = true;
  for (const Gpu& gpu : gpus) everywhere = everywhere && gpu.under_mps;
  if (everywhere) {
    const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    backend.notes.push_back(std::string("MPS serves this daemon; its clients need "
                                        "CUDA_MPS_PIPE_DIRECTORY=") +
                            (folder != nullptr ? folder : "/tmp/nvidia-mps, the default"));
    return;
  }
  const std::string what =
      "MPS does not serve this daemon: every hand-over between a client and it costs about 280 us";
  switch (choice) {
    case MpsChoice::Off:
      backend.notes.push_back(what + " (gpu.mps is \"off\")");
      return;
    case MpsChoice::Require:
    case MpsChoice::Manage:
      backend.degraded = what;
      backend.warnings.push_back(
          what +
          ". Start nvidia-cuda-mps-control -d before arcommd and its clients, with one "
          "CUDA_MPS_PIPE_DIRECTORY for all of them, or set gpu.mps to \"manage\"; \"off\" takes "
          "it as it is");
      return;
  }
}

// Whom the MPS server that we manage serves, where that is not everybody.
std::optional<uid_t> only_user_of_mps(const std::vector<Gpu>& gpus, NodeBackend& backend) {
  const bool is_used =
      std::any_of(gpus.begin(), gpus.end(), [](auto& gpu) { return gpu.under_mps; });
  if (!is_used || backend.mps == nullptr || backend.mps->serves_all_users()) return std::nullopt;
  const uid_t own = ::geteuid();
  backend.warnings.push_back(
      "the MPS server that this daemon manages serves uid " + std::to_string(own) +
      " alone: clients of other users are refused on GPUs. " +
      (own == 0
           ? "It was started without -multiuser-server: let its clients end and restart arcommd, "
             "and where that does not help upgrade the NVIDIA driver, whose "
             "nvidia-cuda-mps-control does not know that option"
           : "To serve them, let root start nvidia-cuda-mps-control -d -multiuser-server "
             "before arcommd, with one CUDA_MPS_PIPE_DIRECTORY for daemon and clients, and set "
             "gpu.mps to \"require\""));
  return own;
}

// "cuda: 2 x NVIDIA H200, NVLink, MPS"
std::string summary(const std::vector<Gpu>& gpus) {
  bool nvlink = gpus.size() > 1, mps = true;
  for (const Gpu& gpu : gpus) {
    mps = mps && gpu.under_mps;
    for (const GpuLink& link : gpu.links) nvlink = nvlink && link.atomics;
  }
  return "cuda: " + std::to_string(gpus.size()) + " x " + gpus.front().name +
         (nvlink ? ", NVLink" : "") + (mps ? ", MPS" : ", no MPS");
}

Result<ServedDevices> open_gpus(const std::vector<Gpu>& gpus) {
  std::vector<int> all;
  all.reserve(gpus.size());
  for (const Gpu& gpu : gpus) all.push_back(gpu.ordinal);
  ServedDevices served{.name = "gpu", .devices = {}};
  for (const Gpu& gpu : gpus) {
    Result<std::unique_ptr<CudaDevice>> device =
        CudaDevice::create({.ordinal = gpu.ordinal, .peers = all});
    if (!device) {
      Error why = std::move(device).error();
      why.message = describe(gpu) + ": " + why.message;
      return why;
    }
    served.devices.push_back(std::move(device).value());
  }
  std::vector<Device*> devices;
  devices.reserve(gpus.size());
  for (const auto& device : served.devices) devices.push_back(device.get());
  served.open = gpu_backend_on(std::move(devices));
  return served;
}

// A daemon that ended because of a fault under MPS is started again at once, and the others that
// MPS served take a moment to end. Longer than that is the next start's affair: a process whose
// CUDA could not begin may never find that it can.
Result<std::vector<Gpu>> find_gpus() {
  const auto until = std::chrono::steady_clock::now() + kMpsRecovers;
  for (;;) {
    Result<std::vector<Gpu>> gpus = discover_gpus();
    if (gpus || !gets_better(gpus.error()) || std::chrono::steady_clock::now() >= until)
      return gpus;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// Adds the GPUs' worker, or says why there is none.
Status add_gpus(const Settings& settings, NodeBackend& backend) {
  if (settings.gpu.mps == MpsChoice::Manage) {
    Result<std::unique_ptr<MpsServer>> mps =
        MpsServer::start(settings.runtime_dir, ::geteuid() == 0);
    if (mps) {
      backend.mps = std::move(mps).value();
    } else {
      backend.warnings.push_back("MPS was not started: " + mps.error().message);
    }
  }
  const Result<std::vector<Gpu>> gpus = find_gpus();
  if (!gpus) return gpus.error();
  if (gpus->empty()) {
    return error(ErrorCode::NotFound, Reason::Unsupported,
                 "this process sees no GPU: look at nvidia-smi -L, CUDA_VISIBLE_DEVICES and the "
                 "unit's DeviceAllow");
  }
  Result<ServedDevices> opened = open_gpus(*gpus);
  if (!opened) {
    // There are some, and nobody can use them.
    if (settings.device.backend == BackendChoice::Auto)
      backend.degraded = "the GPUs cannot be used: " + opened.error().message;
    return std::move(opened).error();
  }
  for (const Gpu& gpu : *gpus) backend.notes.push_back(describe(gpu));
  note_mps(*gpus, settings.gpu.mps, backend);
  opened->only_uid = only_user_of_mps(*gpus, backend);
  backend.workers.push_back(std::move(opened).value());
  backend.name = summary(*gpus);
  return {};
}

}  // namespace

void prepare_environment(const Settings& settings) {
  if (!may_use_gpus(settings)) return;
  // A kernel that is loaded when it is first launched waits for the device to be idle, and a
  // resident kernel keeps it from ever being that.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  // A stream that waits for a client must not hold up others that share its channel: one for each.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (settings.gpu.mps == MpsChoice::Manage) MpsServer::name_folders(settings.runtime_dir);
}

Result<NodeBackend> open_backend(const Settings& settings) {
  NodeBackend backend;
  backend.name = "host";
  if (may_use_gpus(settings)) {
    if (Status added = add_gpus(settings, backend); !added) {
      // Without GPUs for good is worse than to be started once more.
      if (gets_better(added.error())) return added.error();
      if (settings.device.backend == BackendChoice::Cuda) {
        Error why = added.error();
        why.message = "device.backend is \"cuda\" and no GPU can be served: " + why.message;
        return why;
      }
      if (backend.degraded.empty()) {
        backend.notes.push_back("no GPU is served: " + added.error().message);
      } else {
        backend.warnings.push_back(backend.degraded);
      }
      backend.mps.reset();
    }
  }
  Result<std::unique_ptr<HostDevice>> host = HostDevice::create(HostDeviceOptions{});
  if (!host) return std::move(host).error();
  backend.workers.push_back({.name = "host:0", .devices = {}, .open = host_backend_on(**host)});
  backend.workers.back().devices.push_back(std::move(host).value());
  return backend;
}

}  // namespace arcomm
