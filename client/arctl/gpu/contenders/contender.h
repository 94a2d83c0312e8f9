// Whose AllReduce is timed: arcommd's through its client library, or another library's. All of them
// are timed by the same code (timed_run.h), on the same GPU and stream. Thread: the one that made
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::arctl {

// Behind the largest size, in send and in recv: what nothing may touch, and room for any alignment.
inline constexpr std::uint64_t kSlackBytes = 4096;

// Device memory of a contender, for the largest size and kSlackBytes.
struct GpuBuffers {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

class GpuContender {
 public:
  virtual ~GpuContender() = default;

  virtual GpuBuffers buffers() const = 0;
  // Puts one on the device's stream and returns. All ranks call the same, in the same order. codec:
  // of a library that has none it is passed over.
  virtual Status all_reduce(const std::byte* send, std::byte* recv, std::uint64_t count,
                            DType dtype, ReduceOp op, Codec codec) = 0;
  // The same of one element: what is behind it on the stream begins when all ranks are here.
  virtual Status meet() = 0;
  // After the stream was waited for: did everything go well?
  virtual Status outcome() = 0;
  // When all is done, by all ranks: gives back what others hold too.
  virtual Status leave() { return {}; }
};

}  // namespace arcomm::arctl
