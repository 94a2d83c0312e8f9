#include "client/cuda/cuda_copy_stream.h"

#include <cstring>
#include <thread>

#include "client/cuda/post/post.h"

namespace arcomm::client {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{10};

}  // namespace

Status CudaCopyStream::set_up(std::string gpu) {
  gpu_ = std::move(gpu);
  constexpr int kHighest = -100;  // the driver takes the nearest that there is
  CUresult done = api_.cuStreamCreateWithPriority_(&stream_, CU_STREAM_NON_BLOCKING, kHighest);
  if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA stream");
  done = api_.cuEventCreate_(&copied_, CU_EVENT_DISABLE_TIMING);
  if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA event");
  done = api_.cuMemHostAlloc_(&pinned_, kMailboxWithNotesBytes, CU_MEMHOSTALLOC_PORTABLE);
  if (done != CUDA_SUCCESS) return api_.failed(done, "allocating pinned memory");
  return {};
}

// One thread at a time, so that a copy that hangs keeps the pinned memory to itself.
Status CudaCopyStream::until_copied(Clock::time_point deadline) {
  while (is_copying_) {
    const CUresult done = api_.cuEventQuery_(copied_);
    if (done == CUDA_SUCCESS) {
      is_copying_ = false;
    } else if (done != CUDA_ERROR_NOT_READY) {
      return api_.failed(done, "copying a word from or to the GPU (had a kernel failed before?)");
    } else if (Clock::now() >= deadline) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, gpu_,
                   " did not copy a few words in time: it is busy or stuck");
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return {};
}

template <typename Begin>
Status CudaCopyStream::copy(Clock::time_point deadline, const char* what, const Begin& begin) {
  ARC_RETURN_IF_ERROR(until_copied(deadline));
  CUresult done = begin();
  if (done == CUDA_SUCCESS) done = api_.cuEventRecord_(copied_, stream_);
  if (done != CUDA_SUCCESS) return api_.failed(done, what);
  is_copying_ = true;
  return until_copied(deadline);
}

Status CudaCopyStream::read(void* to, const void* from, std::size_t bytes,
                            std::chrono::nanoseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::lock_guard lock(mutex_);
  ARC_RETURN_IF_ERROR(copy(deadline, "copying words from the GPU", [&] {
    return api_.cuMemcpyDtoHAsync_(pinned_, reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  }));
  std::memcpy(to, pinned_, bytes);
  return {};
}

Status CudaCopyStream::write(void* to, const void* from, std::size_t bytes,
                             std::chrono::nanoseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::lock_guard lock(mutex_);
  return copy(deadline, "copying words to the GPU", [&] {
    std::memcpy(pinned_, from, bytes);
    return api_.cuMemcpyHtoDAsync_(reinterpret_cast<CUdeviceptr>(to), pinned_, bytes, stream_);
  });
}

}  // namespace arcomm::client
