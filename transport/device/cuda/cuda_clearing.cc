#include "transport/device/cuda/cuda_clearing.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm {
namespace {

using Clock = std::chrono::steady_clock;

// Less is stored without a kernel.
constexpr std::size_t kTriedBytes = 1 << 20;
// A kernel that finds room takes 10 us.
constexpr std::chrono::microseconds kTryLimit{300};
constexpr std::uint64_t kPieceBytes = 4 << 20;
// Whoever still waits for it asks again within 150 ms (QuiesceQueue); who was refused may come back
// for it later, unless others want the room.
constexpr std::chrono::seconds kWantedFor{1};
constexpr std::chrono::milliseconds kWaitedFor{200};
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
    static auto* const left = new std::vector<std::vector<Job>>();
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

bool CudaClearing::has_kernel() const {
  return cudaStreamQuery(kernels_) == cudaErrorNotReady;
}

bool CudaClearing::has_room() {
  // What was tried before and has not run yet says enough.
  if (has_kernel()) return false;
  if (cudaMemsetAsync(tried_, 0, kTriedBytes, kernels_) != cudaSuccess) return true;
  return wait_until(kernels_, Clock::now() + kTryLimit) != cudaErrorNotReady;
}

Result<CudaClearing::Provided> CudaClearing::provide(std::uint64_t bytes, std::uint64_t most_bytes,
                                                     std::shared_ptr<const void> token,
                                                     const Make& make,
                                                     std::chrono::nanoseconds timeout) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const auto until = now + timeout;
  Job job;
  const auto kept = std::ranges::find_if(kept_, [&](const Job& one) {
    return one.asked_bytes == bytes && one.most_bytes == most_bytes;
  });
  if (kept != kept_.end()) {
    job = std::move(*kept);
    kept_.erase(kept);
  } else {
    if (!kept_.empty() && is_idle()) kept_.clear();
    Result<CudaMapping> made = make();
    if (!made) return std::move(made).error();
    job.mapping = std::move(made).value();
    job.asked_bytes = bytes;
    job.most_bytes = most_bytes;
    job.is_by_kernel = has_room();
    if (!job.is_by_kernel) cudaGetLastError();
  }
  job.token = std::move(token);
  job.asked_at = now;
  const cudaError_t state = go_on(job, until);
  if (state == cudaSuccess) return Provided{std::move(job.token), std::move(job.mapping)};
  if (state != cudaErrorNotReady) job.asked_bytes = 0;
  kept_.push_back(std::move(job));
  return told(state, bytes, timeout).error();
}

std::vector<CudaClearing::Provided> CudaClearing::take_abandoned(bool is_needed) {
  const std::lock_guard lock(mutex_);
  std::vector<Provided> abandoned;
  if (kept_.empty() || !is_idle()) return abandoned;
  const auto before = Clock::now() - (is_needed ? kWaitedFor : kWantedFor);
  std::erase_if(kept_, [&](Job& job) {
    const bool is_left = is_needed && job.token.use_count() == 1;
    if (!is_left && job.asked_at > before) return false;
    abandoned.push_back({std::move(job.token), std::move(job.mapping)});
    return true;
  });
  return abandoned;
}

bool CudaClearing::keeps() const {
  const std::lock_guard lock(mutex_);
  return !kept_.empty();
}

cudaError_t CudaClearing::go_on(Job& job, Clock::time_point until) {
  const MemoryRef memory = job.mapping.view();
  if (job.is_by_kernel) {
    cudaError_t state = cudaSuccess;
    if (job.queued_bytes == 0) {
      state = cudaMemsetAsync(memory.data, 0, memory.bytes, kernels_);
      job.queued_bytes = memory.bytes;
    }
    return state == cudaSuccess ? wait_until(kernels_, until) : state;
  }
  while (job.queued_bytes < memory.bytes) {
    cudaError_t state = wait_until(copies_, until);
    for (int piece = 0;
         piece < kPiecesAtOnce && job.queued_bytes < memory.bytes && state == cudaSuccess;
         ++piece) {
      const std::uint64_t bytes = std::min(kPieceBytes, memory.bytes - job.queued_bytes);
      state = cudaMemcpyAsync(memory.data + job.queued_bytes, zeros_, bytes, cudaMemcpyHostToDevice,
                              copies_);
      job.queued_bytes += bytes;
    }
    if (state != cudaSuccess) return state;
  }
  return wait_until(copies_, until);
}

}  // namespace arcomm
