#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sched.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/launch/cuda_queue.h"

namespace arcomm {
namespace {

// The driver's functions that the runtime does not offer.
struct MemoryOperations {
  decltype(&cuStreamWriteValue32) write32 = nullptr;
  decltype(&cuStreamWriteValue64) write64 = nullptr;
  decltype(&cuStreamWaitValue64) wait64 = nullptr;
};

const MemoryOperations& memory_operations() {
  static const MemoryOperations found = [] {
    MemoryOperations operations;
    const auto look_up = [](const char* name, auto& function) {
      void* address = nullptr;
      cudaDriverEntryPointQueryResult result;
      if (cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &result) ==
              cudaSuccess &&
          result == cudaDriverEntryPointSuccess) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
      }
    };
    look_up("cuStreamWriteValue32", operations.write32);
    look_up("cuStreamWriteValue64", operations.write64);
    look_up("cuStreamWaitValue64", operations.wait64);
    return operations;
  }();
  return found;
}

Status stored(CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  return error(ErrorCode::Internal, Reason::None,
               "storing a word in a GPU's memory by its stream: driver error ",
               static_cast<int>(result));
}

Status waits(CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  return error(ErrorCode::Internal, Reason::None,
               "making a stream wait for a word in a GPU's memory: driver error ",
               static_cast<int>(result));
}

Status unsupported() {
  return error(ErrorCode::Unavailable, Reason::Unsupported,
               "this driver has no stream memory operations: install R525 or later");
}

}  // namespace

Result<CudaQueue> CudaQueue::create(int ordinal) {
  cudaError_t made = cudaSetDevice(ordinal);
  cudaStream_t stream = nullptr;
  if (made == cudaSuccess) made = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (made != cudaSuccess) return device::cuda_error(made, "creating a stream");
  return CudaQueue(ordinal, stream);
}

CudaQueue::~CudaQueue() {
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

Status CudaQueue::make_current() const {
  const cudaError_t made = cudaSetDevice(ordinal_);
  if (made != cudaSuccess) return device::cuda_error(made, "making a GPU current");
  return {};
}

Status CudaQueue::store(std::uint64_t* address, std::uint64_t value) const {
  ARC_RETURN_IF_ERROR(make_current());
  const auto write = memory_operations().write64;
  if (write == nullptr) return unsupported();
  return stored(write(static_cast<CUstream>(stream_), reinterpret_cast<CUdeviceptr>(address), value,
                      CU_STREAM_WRITE_VALUE_DEFAULT));
}

Status CudaQueue::store(std::uint32_t* address, std::uint32_t value) const {
  ARC_RETURN_IF_ERROR(make_current());
  const auto write = memory_operations().write32;
  if (write == nullptr) return unsupported();
  return stored(write(static_cast<CUstream>(stream_), reinterpret_cast<CUdeviceptr>(address), value,
                      CU_STREAM_WRITE_VALUE_DEFAULT));
}

Status CudaQueue::wait_equal(std::uint64_t* address, std::uint64_t value) const {
  ARC_RETURN_IF_ERROR(make_current());
  const auto wait = memory_operations().wait64;
  if (wait == nullptr) return unsupported();
  return waits(wait(static_cast<CUstream>(stream_), reinterpret_cast<CUdeviceptr>(address), value,
                    CU_STREAM_WAIT_VALUE_EQ));
}

Status CudaQueue::record(void* event) const {
  ARC_RETURN_IF_ERROR(make_current());
  const cudaError_t recorded =
      cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream_));
  if (recorded != cudaSuccess) return device::cuda_error(recorded, "recording an event in a queue");
  return {};
}

// Whichever GPU is current.
Status CudaQueue::wait_event(void* event) const {
  const cudaError_t waits =
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream_), static_cast<cudaEvent_t>(event), 0);
  if (waits != cudaSuccess) return device::cuda_error(waits, "making a queue wait for an event");
  return {};
}

Status CudaQueue::copy(void* to, const void* from, std::uint64_t bytes) const {
  ARC_RETURN_IF_ERROR(make_current());
  const cudaError_t copied =
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream_));
  if (copied != cudaSuccess) return device::cuda_error(copied, "putting a copy into a queue");
  return {};
}

Result<bool> CudaQueue::idle() const {
  const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream_));
  if (state == cudaSuccess) return true;
  if (state == cudaErrorNotReady) return false;
  return device::cuda_error(state, "a GPU's queue");
}

Status CudaQueue::drain(std::chrono::nanoseconds timeout) const {
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    Result<bool> ended = idle();
    if (!ended) return ended.error();
    if (*ended) return {};
    if (std::chrono::steady_clock::now() >= until) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "what was launched on GPU ",
                   ordinal_, " did not end within ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), " ms");
    }
    ::sched_yield();
  }
}

}  // namespace arcomm
