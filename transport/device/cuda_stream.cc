#include "transport/device/cuda_stream.h"

#include <thread>

#include "transport/device/cuda_driver.h"

namespace arcomm {
namespace {

// The runtime has no wait with a deadline: look, and sleep longer the longer it takes.
template <typename Query>
Status poll_until_done(Query query, std::chrono::nanoseconds timeout, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto pause = std::chrono::nanoseconds(0);
  for (;;) {
    const cudaError_t state = query();
    if (state == cudaSuccess) return {};
    if (state != cudaErrorNotReady) return cuda_error(state, what);
    const auto waited = Clock::now() - start;
    if (waited >= timeout) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, what, " was not reached within ",
                   std::chrono::duration_cast<std::chrono::microseconds>(timeout).count(), " us");
    }
    if (waited < std::chrono::microseconds(50)) continue;
    pause = std::min<std::chrono::nanoseconds>(pause + std::chrono::microseconds(5),
                                               std::chrono::milliseconds(1));
    std::this_thread::sleep_for(pause);
  }
}

Enqueue enqueued(cudaError_t state) {
  return state == cudaSuccess ? Enqueue::Done : Enqueue::Failed;
}

}  // namespace

Result<std::unique_ptr<CudaEvent>> CudaEvent::create(int ordinal) {
  const CurrentCudaDevice current(ordinal);
  cudaEvent_t event = nullptr;
  const cudaError_t made = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (made != cudaSuccess) return cuda_error(made, "making an event");
  return std::unique_ptr<CudaEvent>(new CudaEvent(event));
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

bool CudaEvent::query() const {
  return cudaEventQuery(event_) == cudaSuccess;
}

Status CudaEvent::synchronize(std::chrono::nanoseconds timeout) const {
  return poll_until_done([this] { return cudaEventQuery(event_); }, timeout, "the event");
}

Result<std::unique_ptr<CudaStream>> CudaStream::create(int ordinal, std::uint32_t slots) {
  const CurrentCudaDevice current(ordinal);
  cudaStream_t stream = nullptr;
  const cudaError_t made = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (made != cudaSuccess) return cuda_error(made, "making a stream");
  return std::unique_ptr<CudaStream>(new CudaStream(ordinal, stream, slots));
}

CudaStream::~CudaStream() {
  const CurrentCudaDevice current(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void CudaStream::run(void* context) {
  auto& slot = *static_cast<Slot*>(context);
  CudaStream& stream = *slot.stream;
  if (slot.task.run != nullptr) slot.task.run(slot.task.context);
  stream.ended_.fetch_add(1, std::memory_order_release);  // the slot is free from here on
}

Enqueue CudaStream::push(StreamTask task) {
  Slot& slot = slots_[begun_ % num_slots_];
  slot = {this, task};
  const CurrentCudaDevice current(ordinal_);
  const Enqueue done = enqueued(cudaLaunchHostFunc(stream_, &CudaStream::run, &slot));
  if (done == Enqueue::Done) ++begun_;
  return done;
}

Enqueue CudaStream::enqueue(StreamTask task) {
  return has_room() ? push(task) : Enqueue::Full;
}

Enqueue CudaStream::record(EventRef event) {
  if (!has_room()) return Enqueue::Full;
  const CurrentCudaDevice current(ordinal_);
  const auto* backing = static_cast<const CudaEvent*>(event.backing());
  return enqueued(cudaEventRecord(backing->handle(), stream_));
}

Enqueue CudaStream::wait_for(EventRef event) {
  if (!has_room()) return Enqueue::Full;
  const CurrentCudaDevice current(ordinal_);
  const auto* backing = static_cast<const CudaEvent*>(event.backing());
  return enqueued(cudaStreamWaitEvent(stream_, backing->handle(), 0));
}

bool CudaStream::query() const {
  return cudaStreamQuery(stream_) == cudaSuccess;
}

Status CudaStream::synchronize(std::chrono::nanoseconds timeout) const {
  return poll_until_done([this] { return cudaStreamQuery(stream_); }, timeout,
                         "the end of the stream");
}

}  // namespace arcomm
