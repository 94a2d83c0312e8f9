// An in-order queue of launches on one GPU, which waits for no other stream. Move-only owner; one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "proto/status.h"

namespace arcomm {

class CudaQueue {
 public:
  static Result<CudaQueue> create(int ordinal);

  CudaQueue() = default;
  ~CudaQueue();
  CudaQueue(CudaQueue&& other) noexcept
      : ordinal_(other.ordinal_), stream_(std::exchange(other.stream_, nullptr)) {}
  CudaQueue& operator=(CudaQueue&& other) noexcept {
    std::swap(ordinal_, other.ordinal_);
    std::swap(stream_, other.stream_);
    return *this;
  }

  int ordinal() const { return ordinal_; }
  void* stream() const { return stream_; }  // a cudaStream_t
  // Makes its GPU the calling thread's current one, which launching into stream() by hand needs.
  Status make_current() const;
  // Stores `value` at a device address of this GPU, in the queue's order. The GPU's front end does
  // it and needs no SM, so it overtakes kernels that wait.
  Status store(std::uint64_t* address, std::uint64_t value) const;
  Status store(std::uint32_t* address, std::uint32_t value) const;
  // What comes behind it in the queue waits until the word at a device address of this GPU is
  // `value`. There is no timeout: the caller makes sure that the word gets that value.
  Status wait_equal(std::uint64_t* address, std::uint64_t value) const;
  // From now on the event, a cudaEvent_t of this GPU (cuda_event_ring.h), stands for all that is in
  // the queue so far.
  Status record(void* event) const;
  // What comes behind it in the queue waits until what the event stands for now, in a queue of any
  // GPU, has ended.
  Status wait_event(void* event) const;
  // By a copy engine, between the memories of any GPUs that this one reaches.
  Status copy(void* to, const void* from, std::uint64_t bytes) const;
  // Has everything in it run? An error of the device shows here.
  Result<bool> idle() const;
  Status drain(std::chrono::nanoseconds timeout) const;

 private:
  CudaQueue(int ordinal, void* stream) : ordinal_(ordinal), stream_(stream) {}
  int ordinal_ = -1;
  void* stream_ = nullptr;
};

}  // namespace arcomm
