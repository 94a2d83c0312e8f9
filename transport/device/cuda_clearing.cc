#include "transport/device/cuda_clearing.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/device/cuda_runtime.h"

namespace arcomm {
namespace {

using Clock = std::chrono::steady_clock;

// Less is stored without a kernel.
constexpr std::size_t kTriedBytes = 1 << 20;
// A kernel that finds room takes 10 us.
constexpr std::chrono::microseconds kTryLimit{300};
constexpr std::uint64_t kPieceBytes = 4 << 20;
// Far fewer copies than a stream takes before it makes its caller wait.
constexpr int kPiecesAtOnce = 32;

// The stream's end within the time: cudaErrorNotReady where it has not come.
cudaError_t wait_until(cudaStream_t stream, Clock::time_point until) {
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady || Clock::now() >= until) return state;
    ::sched_yield();
  }
}

Status told(cudaError_t state, std::uint64_t bytes, std::chrono::nanoseconds timeout) {
  if (state == cudaSuccess) return {};
  if (state != cudaErrorNotReady) return cuda_error(state, "clearing GPU memory");
  cudaGetLastError();
  return error(ErrorCode::Unavailable, Reason::None, bytes,
               " bytes of GPU memory could not be cleared within ",
               std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(),
               " ms: other work keeps the GPU busy; try again");
}

}  // namespace

Result<std::unique_ptr<CudaClearing>> CudaClearing::create() {
  std::unique_ptr<CudaClearing> clearing(new CudaClearing());
  cudaError_t made = cudaStreamCreateWithFlags(&clearing->kernels_, cudaStreamNonBlocking);
  if (made == cudaSuccess)
    made = cudaStreamCreateWithFlags(&clearing->copies_, cudaStreamNonBlocking);
  if (made == cudaSuccess) made = cudaMalloc(&clearing->tried_, kTriedBytes);
  if (made == cudaSuccess) made = cudaHostAlloc(&clearing->zeros_, kPieceBytes, 0);
  if (made != cudaSuccess) return cuda_error(made, "preparing to clear GPU memory");
  std::memset(clearing->zeros_, 0, kPieceBytes);
  return clearing;
}

CudaClearing::~CudaClearing() {
  if (!is_idle()) {
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the daemon ends here too
    static auto* const left = new std::vector<std::vector<CudaMapping>>();
    left->push_back(std::move(kept_));
  }
  // Freeing the memory would wait for whatever this process runs on the GPU.
  for (const cudaStream_t stream : {kernels_, copies_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

bool CudaClearing::is_idle() const {
  for (const cudaStream_t stream : {kernels_, copies_}) {
    if (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady) return false;
  }
  return true;
}

bool CudaClearing::has_room() {
  // What was tried before and has not run yet says enough.
  if (cudaStreamQuery(kernels_) == cudaErrorNotReady) return false;
  if (cudaMemsetAsync(tried_, 0, kTriedBytes, kernels_) != cudaSuccess) return true;
  return wait_until(kernels_, Clock::now() + kTryLimit) != cudaErrorNotReady;
}

Status CudaClearing::clear(CudaMapping& mapping, std::chrono::nanoseconds timeout) {
  const std::lock_guard lock(mutex_);
  const auto until = Clock::now() + timeout;
  if (!kept_.empty() && is_idle()) kept_.clear();
  const MemoryRef memory = mapping.view();
  Status cleared;
  if (has_room()) {
    cudaError_t state = cudaMemsetAsync(memory.data, 0, memory.bytes, kernels_);
    if (state == cudaSuccess) state = wait_until(kernels_, until);
    cleared = told(state, memory.bytes, timeout);
  } else {
    cudaGetLastError();
    cleared = put_copies(memory, until);
    if (!cleared && cleared.error().code == ErrorCode::Unavailable)
      cleared = told(cudaErrorNotReady, memory.bytes, timeout);
  }
  if (!cleared) kept_.push_back(std::move(mapping));
  return cleared;
}

Status CudaClearing::put_copies(MemoryRef memory, Clock::time_point until) {
  std::uint64_t done = 0;
  while (done < memory.bytes) {
    cudaError_t state = wait_until(copies_, until);
    for (int piece = 0; piece < kPiecesAtOnce && done < memory.bytes && state == cudaSuccess;
         ++piece) {
      const std::uint64_t bytes = std::min(kPieceBytes, memory.bytes - done);
      state = cudaMemcpyAsync(memory.data + done, zeros_, bytes, cudaMemcpyHostToDevice, copies_);
      done += bytes;
    }
    if (state != cudaSuccess) return told(state, memory.bytes, {});
  }
  return told(wait_until(copies_, until), memory.bytes, {});
}

}  // namespace arcomm
