// A stream and an event of a CUDA device, behind the seams of stream.h and event.h. Threads: as
// there. A task is a host function in the stream: it must not call CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "transport/device/event.h"
#include "transport/device/stream.h"

namespace arcomm {

class CudaEvent final : public EventRef::Backing {
 public:
  static Result<std::unique_ptr<CudaEvent>> create(int ordinal);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool query() const override;
  Status synchronize(std::chrono::nanoseconds timeout) const override;
  cudaEvent_t handle() const { return event_; }

 private:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  cudaEvent_t event_;
};

class CudaStream final : public StreamRef::Backing {
 public:
  // slots: how much may wait in it. The driver's own queue is longer, and blocks when it is full.
  static Result<std::unique_ptr<CudaStream>> create(int ordinal, std::uint32_t slots);
  // Waits for what was enqueued.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Enqueue enqueue(StreamTask task) override;
  Enqueue record(EventRef event) override;
  Enqueue wait_for(EventRef event) override;
  bool query() const override;
  Status synchronize(std::chrono::nanoseconds timeout) const override;
  // For kernels and copies, which kernels/ and the executor enqueue. The device must be current.
  cudaStream_t handle() const { return stream_; }

 private:
  struct Slot {
    CudaStream* stream = nullptr;
    StreamTask task;
  };
  CudaStream(int ordinal, cudaStream_t stream, std::uint32_t slots)
      : ordinal_(ordinal), stream_(stream), num_slots_(slots), slots_(new Slot[slots]) {}
  bool has_room() const { return begun_ - ended_.load(std::memory_order_acquire) < num_slots_; }
  Enqueue push(StreamTask task);
  static void run(void* slot);

  int ordinal_;
  cudaStream_t stream_;
  std::uint32_t num_slots_;
  std::unique_ptr<Slot[]> slots_;
  std::uint64_t begun_ = 0;              // the enqueuing thread's
  std::atomic<std::uint64_t> ended_{0};  // the driver's thread's
};

}  // namespace arcomm
