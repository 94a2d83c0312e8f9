#include "daemon/control/node_devices.h"

#include "proto/text.h"

namespace arcomm {

Result<NodeDevices::Place> NodeDevices::find(const std::string& device) const {
  if (device.empty()) return Place{};
  std::string known;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const WorkerRef& worker = workers_[i];
    if (worker.device == device) return Place{i, {}};
    known += (known.empty() ? "" : ", ") + worker.device;
    for (const std::string& gpu : worker.gpus) {
      if (gpu == device) return Place{i, gpu};
      known += ", " + gpu;
    }
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no device \"", safe_text(device, kNameBytes),
               "\" here; there is ", known);
}

Result<std::string> NodeDevices::gpu_of(const SessionEntry& session,
                                        const std::string& named) const {
  const WorkerRef& worker = workers_[session.worker];
  if (worker.gpus.empty()) {
    if (named.empty() || named == worker.device) return std::string();
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "session ", session.id, " is on ",
                 worker.device, " and cannot use \"", safe_text(named, kNameBytes),
                 "\": attach to that device");
  }
  if (named.empty()) return session.gpu.empty() ? worker.gpus.front() : session.gpu;
  std::string known;
  for (const std::string& gpu : worker.gpus) {
    if (gpu == named) return gpu;
    known += (known.empty() ? "" : ", ") + gpu;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no GPU \"", safe_text(named, kNameBytes),
               "\" here; there is ", known);
}

std::map<std::string, std::uint64_t> NodeDevices::memory_of_gpus() const {
  std::map<std::string, std::uint64_t> memory;
  for (const WorkerRef& worker : workers_) {
    for (std::size_t i = 0; i < worker.gpus.size(); ++i)
      memory[worker.gpus[i]] = i < worker.gpu_bytes.size() ? worker.gpu_bytes[i] : 0;
  }
  return memory;
}

}  // namespace arcomm
