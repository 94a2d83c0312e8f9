#include "transport/device/cuda/cuda_device.h"

#include <chrono>
#include <utility>

#include "transport/device/cuda/cuda_import.h"
#include "transport/device/cuda/cuda_mapping.h"
#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm {
namespace {

// Whoever allocates holds up others meanwhile.
constexpr std::chrono::milliseconds kClearTimeout{30};

class CudaMemory final : public Memory::Backing {
 public:
  CudaMemory(CudaMapping mapping, const CudaDeviceOptions& home)
      : mapping_(std::move(mapping)), home_(home) {}
  MemoryRef view() const override { return mapping_.view(); }
  Result<UniqueFd> export_fd() const override { return mapping_.export_fd(); }
  Status grow(std::uint64_t bytes) override {
    const CurrentCudaDevice current(home_.ordinal);
    return mapping_.grow(home_.ordinal, bytes, home_.peers);
  }
  void cut_back() override { mapping_.cut_back(); }

 private:
  CudaMapping mapping_;
  const CudaDeviceOptions& home_;  // the device's, which outlives it
};

// Lets the GPU that is current reach everything in the others' contexts.
Status enable_peer_access(int ordinal, std::span<const int> peers) {
  for (const int peer : peers) {
    if (peer == ordinal) continue;
    int reachable = 0;
    const cudaError_t asked = cudaDeviceCanAccessPeer(&reachable, ordinal, peer);
    if (asked != cudaSuccess) return cuda_error(asked, "asking whether GPUs reach each other");
    if (reachable == 0) {
      return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "GPU ", ordinal,
                   " cannot reach GPU ", peer,
                   "'s memory (no peer-to-peer): hide one of them with CUDA_VISIBLE_DEVICES");
    }
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else if (enabled != cudaSuccess) {
      return cuda_error(enabled, "letting one GPU reach another's memory");
    }
  }
  return {};
}

}  // namespace

int count_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(CudaDeviceOptions options) {
  if (const Result<const CudaDriver*> driver = cuda_driver(); !driver) return driver.error();
  const int count = count_cuda_devices();
  if (options.ordinal < 0 || options.ordinal >= count) {
    return error(ErrorCode::NotFound, Reason::BadValue, "GPU ", options.ordinal,
                 ": this process sees ", count);
  }
  if (options.peers.empty()) options.peers.push_back(options.ordinal);
  const CurrentCudaDevice current(options.ordinal);
  if (const cudaError_t opened = cudaFree(nullptr); opened != cudaSuccess) {
    return cuda_error(opened, "opening the GPU's context");
  }
  ARC_RETURN_IF_ERROR(enable_peer_access(options.ordinal, options.peers));
  cudaDeviceProp properties{};
  if (const cudaError_t read = cudaGetDeviceProperties(&properties, options.ordinal);
      read != cudaSuccess) {
    return cuda_error(read, "reading the GPU's properties");
  }
  Result<std::unique_ptr<CudaClearing>> clearing = CudaClearing::create();
  if (!clearing) return std::move(clearing).error();
  return std::unique_ptr<CudaDevice>(
      new CudaDevice(std::move(options), cuda_uuid_text(properties.uuid), properties.totalGlobalMem,
                     std::move(clearing).value()));
}

Result<Memory> CudaDevice::provide(std::uint64_t bytes, std::uint64_t most_bytes,
                                   std::shared_ptr<const void> token) {
  const CurrentCudaDevice current(options_.ordinal);
  Result<CudaClearing::Provided> provided = clearing_->provide(
      bytes, most_bytes, std::move(token),
      [&] { return CudaMapping::create(options_.ordinal, bytes, options_.peers, most_bytes); },
      kClearTimeout);
  if (!provided) return std::move(provided).error();
  return memory_of(std::move(*provided));
}

std::vector<Memory> CudaDevice::take_abandoned(bool is_needed) {
  std::vector<Memory> abandoned;
  for (CudaClearing::Provided& one : clearing_->take_abandoned(is_needed))
    abandoned.push_back(memory_of(std::move(one)));
  return abandoned;
}

Memory CudaDevice::memory_of(CudaClearing::Provided provided) const {
  Memory memory(std::make_unique<CudaMemory>(std::move(provided.mapping), options_));
  memory.keep(std::move(provided.token));
  return memory;
}

Status CudaDevice::import(const MemoryHandle& handle, int descriptor, Memory& memory) {
  return import_cuda_memory(handle, descriptor, options_.ordinal, options_.peers, memory);
}

Status CudaDevice::import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                                 std::uint64_t length_bytes, Memory& memory) {
  return import_cuda_chunks(chunks, offset_bytes, length_bytes, options_.ordinal, options_.peers,
                            memory);
}

}  // namespace arcomm
