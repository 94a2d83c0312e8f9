// A stream of our own, which no other work delays, for a few words to and from the GPU, through
// pinned memory.
// Thread: any; one copy at a time. The context that it was set up in is current in every call.
// Never destroyed.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>

#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CudaCopyStream {
 public:
  // api: outlives this.
  explicit CudaCopyStream(const CudaDriver& api) : api_(api) {}
  // gpu: its name, for errors. Once.
  Status set_up(std::string gpu);

  // Up to kMailboxWithNotesBytes. DeadlineExceeded when they do not come in time.
  Status read(void* to, const void* from, std::size_t bytes, std::chrono::nanoseconds timeout);
  Status write(void* to, const void* from, std::size_t bytes, std::chrono::nanoseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  template <typename Begin>
  Status copy(Clock::time_point deadline, const char* what, const Begin& begin);
  Status until_copied(Clock::time_point deadline);

  const CudaDriver& api_;
  std::string gpu_;
  CUstream stream_ = nullptr;
  CUevent copied_ = nullptr;

  std::mutex mutex_;  // of what follows
  void* pinned_ = nullptr;
  bool is_copying_ = false;  // a copy that did not end in its time still uses the pinned memory
};

}  // namespace arcomm::client
