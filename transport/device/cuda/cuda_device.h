// A GPU of NVIDIA as a Device. Its memory can be reached by every GPU of the process that can reach
// it. Threads and ownership: device.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/device/cuda/cuda_clearing.h"
#include "transport/device/device.h"

namespace arcomm {

struct CudaDeviceOptions {
  int ordinal = 0;
  // GPUs that reach its memory, itself included; empty: itself alone. create() lets this GPU reach
  // theirs.
  std::vector<int> peers;
};

class CudaDevice final : public Device {
 public:
  // Opens the GPU's context: slow, once. Unavailable where there is no driver, NotFound no such
  // GPU.
  static Result<std::unique_ptr<CudaDevice>> create(CudaDeviceOptions options);

  DeviceKind kind() const override { return DeviceKind::Cuda; }
  int ordinal() const override { return options_.ordinal; }
  std::string name() const override { return name_; }  // "GPU-<uuid>", as nvidia-smi -L says it
  std::uint64_t memory_bytes() const override { return memory_bytes_; }
  Result<Memory> allocate(std::uint64_t bytes) override { return provide(bytes, 0, {}); }
  Result<Memory> allocate_for(const std::shared_ptr<const void>& token,
                              std::uint64_t bytes) override {
    return provide(bytes, 0, token);
  }
  std::vector<Memory> take_abandoned(bool is_needed) override;
  bool keeps_uncleared() const override { return clearing_->keeps(); }
  Result<Memory> allocate_growing(std::uint64_t bytes, std::uint64_t most_bytes) override {
    return provide(bytes, most_bytes, {});
  }
  bool is_clearing() const override { return clearing_->has_kernel(); }
  Status import(const MemoryHandle& handle, int descriptor, Memory& memory) override;
  Status import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                       std::uint64_t length_bytes, Memory& memory) override;

 private:
  CudaDevice(CudaDeviceOptions options, std::string name, std::uint64_t memory_bytes,
             std::unique_ptr<CudaClearing> clearing)
      : options_(std::move(options)),
        name_(std::move(name)),
        memory_bytes_(memory_bytes),
        clearing_(std::move(clearing)) {}

  Result<Memory> provide(std::uint64_t bytes, std::uint64_t most_bytes,
                         std::shared_ptr<const void> token);
  Memory memory_of(CudaClearing::Provided provided) const;

  CudaDeviceOptions options_;
  std::string name_;
  std::uint64_t memory_bytes_;
  std::unique_ptr<CudaClearing> clearing_;
};

// How many GPUs this process sees; 0 without a driver.
int count_cuda_devices();

}  // namespace arcomm
