#include "client/cuda/cuda_gpus.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "client/cuda/cuda_scope.h"

namespace arcomm::client {

bool has_part_of_sms(const CudaDriver& api, CUcontext context, CUdevice device) {
  const CudaScope scope(api, context);
  if (!scope.entered()) return false;
  CUexecAffinityParam affinity{};
  int sms = 0;
  // Not supported where no MPS serves this process.
  return api.cuCtxGetExecAffinity_(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT) == CUDA_SUCCESS &&
         api.cuDeviceGetAttribute_(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
             CUDA_SUCCESS &&
         affinity.param.smCount.val < static_cast<unsigned>(sms);
}

Result<std::shared_ptr<Gpu>> CudaGpus::current(const std::string& otherwise_uuid) {
  CUcontext context = nullptr;
  CUresult done = api_.cuCtxGetCurrent_(&context);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking for the current CUDA context");
  if (context == nullptr) {
    const Result<CUdevice> device = device_named(otherwise_uuid);
    if (!device) return device.error();
    const CaptureAllowed allowed(api_);
    done = api_.cuDevicePrimaryCtxRetain_(&context, *device);
    if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA context");
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<CudaGpu>& gpu = gpus_[context];
  if (!gpu) {
    Result<std::shared_ptr<CudaGpu>> made = CudaGpu::create(api_, context);
    if (!made) {
      gpus_.erase(context);
      return std::move(made).error();
    }
    gpu = std::move(*made);
  }
  return std::shared_ptr<Gpu>(gpu);
}

std::vector<std::string> CudaGpus::visible() {
  std::vector<std::string> uuids;
  int count = 0;
  if (api_.cuDeviceGetCount_(&count) != CUDA_SUCCESS) return uuids;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if (api_.cuDeviceGet_(&device, i) != CUDA_SUCCESS) continue;
    if (Result<std::string> uuid = CudaGpu::uuid_of(api_, device))
      uuids.push_back(std::move(*uuid));
  }
  return uuids;
}

// Where MPS gives this process a part of the SMs, blocks that wait for other GPUs may not find the
// room that the daemon counts on. MPS's own control can give it one, too, which only the driver
// knows; the environment counts as well, for a GPU that has no context yet.
InStreamHindrance CudaGpus::in_stream_hindrance() {
  const char* const part = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (part != nullptr && std::string_view(part) != "100") return InStreamHindrance::SmLimit;
  const std::lock_guard lock(mutex_);
  for (const auto& [context, gpu] : gpus_) {
    if (has_part_of_sms(api_, context, gpu->ordinal())) return InStreamHindrance::SmLimit;
  }
  return InStreamHindrance::None;
}

Result<CUdevice> CudaGpus::device_named(const std::string& uuid) {
  int count = 0;
  const CUresult counted = api_.cuDeviceGetCount_(&count);
  if (counted != CUDA_SUCCESS) return api_.failed(counted, "counting GPUs");
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    const CUresult done = api_.cuDeviceGet_(&device, i);
    if (done != CUDA_SUCCESS) return api_.failed(done, "asking for a GPU");
    const Result<std::string> its = CudaGpu::uuid_of(api_, device);
    if (!its) return its.error();
    if (uuid.rfind("GPU-", 0) != 0 || *its == uuid) return device;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "of the ", count,
               " GPUs that this process sees none is ", uuid,
               ": does CUDA_VISIBLE_DEVICES hide it?");
}

Result<Gpus*> load_gpus(const char* driver) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string, Gpus*>;  // never destroyed, as what is in it
  const std::lock_guard lock(mutex);
  if (const auto found = loaded->find(driver); found != loaded->end()) return found->second;
  Result<CudaDriver> api = CudaDriver::load(driver);
  Status ready = api ? api->start() : Status(std::move(api).error());
  if (!ready) {
    Error why = std::move(ready).error();
    why.message =
        "the daemon's session is on GPUs: " + why.message + "; or attach with device host:0";
    return why;
  }
  Gpus* const gpus = new CudaGpus(*new CudaDriver(*api));
  loaded->emplace(driver, gpus);
  return gpus;
}

}  // namespace arcomm::client
