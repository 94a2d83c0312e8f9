// Events of one GPU, given out again and again: what CudaQueue::record() puts into a queue, for
// others to wait for. Move-only owner; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/status.h"

namespace arcomm {

class CudaEventRing {
 public:
  static Result<CudaEventRing> create(int ordinal, std::uint32_t events);

  CudaEventRing() = default;
  ~CudaEventRing();
  CudaEventRing(CudaEventRing&& other) noexcept { swap(other); }
  CudaEventRing& operator=(CudaEventRing&& other) noexcept {
    swap(other);
    return *this;
  }

  // The cudaEvent_t that was given out the longest ago. No stream may be told to wait for what
  // was recorded in it then; one that has been told waits for that all the same.
  void* next();

 private:
  void swap(CudaEventRing& other) {
    std::swap(ordinal_, other.ordinal_);
    std::swap(events_, other.events_);
    std::swap(next_, other.next_);
  }

  int ordinal_ = -1;
  std::vector<void*> events_;
  std::size_t next_ = 0;
};

}  // namespace arcomm
