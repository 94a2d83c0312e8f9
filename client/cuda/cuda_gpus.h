// The GPUs that this process sees through CUDA's driver, and the contexts of them that the library
// has been called in. Thread: any. Never destroyed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cuda/cuda_gpu.h"
#include "client/cuda/gpu.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

// Whether kernels of this context may use fewer SMs than the GPU has.
bool has_part_of_sms(const CudaDriver& api, CUcontext context, CUdevice device);

class CudaGpus final : public Gpus {
 public:
  // api: outlives this.
  explicit CudaGpus(const CudaDriver& api) : api_(api) {}

  Result<std::shared_ptr<Gpu>> current(const std::string& otherwise_uuid) override;
  std::vector<std::string> visible() override;
  InStreamHindrance in_stream_hindrance() override;

 private:
  Result<CUdevice> device_named(const std::string& uuid);

  const CudaDriver& api_;
  std::mutex mutex_;
  std::map<CUcontext, std::shared_ptr<CudaGpu>> gpus_;
};

}  // namespace arcomm::client
