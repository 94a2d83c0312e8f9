// AllReduce whose traffic the GPUs' copy engines carry, for operations so large that links count
// and latency does not: every rank's part of shard p is copied to rank p in chunks, p combines them
// out of its own memory while the next chunk travels, and the result is copied to everybody. A copy
// engine moves 390 GB/s over NVLink where stores of SMs move 340 to 366 (H200).
//
// No GPU waits for another here but by events that the host has put into streams, for work that is
// in streams already: nothing can hang, there is no deadline and nothing to abort, and what was
// begun ends after as long as the copies take, and as SMs are free to combine. So it is for
// operations that all ranks have called.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/launch_cuda.h"
#include "proto/status.h"

namespace arcomm {

// A stream of one GPU's and events for this. Operations of several communicators may share them:
// one after the other, each behind its ranks' own streams, and behind other GPUs that combine what
// is ahead; so where communicators have streams of their own, they have copy queues of their own.
// Move-only owner; destroyed once all has ended. One thread.
class CopyQueue {
 public:
  static Result<CopyQueue> create(int ordinal);

  CopyQueue() = default;
  ~CopyQueue();
  CopyQueue(CopyQueue&& other) noexcept { swap(other); }
  CopyQueue& operator=(CopyQueue&& other) noexcept {
    swap(other);
    return *this;
  }

  void* stream() const { return stream_; }  // cudaStream_t
  // Has everything in it run?
  Result<bool> idle() const;
  // A cudaEvent_t that nobody is going to be told to wait for any more.
  void* next_event();

 private:
  static constexpr std::size_t kEvents = 128;  // a few times those of two chunks, between 8

  void swap(CopyQueue& other) {
    std::swap(ordinal_, other.ordinal_);
    std::swap(stream_, other.stream_);
    std::swap(events_, other.events_);
    std::swap(next_, other.next_);
  }

  int ordinal_ = -1;
  void* stream_ = nullptr;
  std::vector<void*> events_;
  std::size_t next_ = 0;
};

// One rank's part.
struct CopyEnginePart {
  CudaAllReduce call;      // as launch_all_reduce() takes it, for CudaAlgorithm::CopyEngine
  void* stream = nullptr;  // the rank's: begins behind what is in it, and ends in it
  CopyQueue* copies = nullptr;
};

// All ranks' parts, by rank. Enqueuing takes the caller 10 to 15 us per chunk and rank; a shard has
// two chunks, or where a rank's output is its input as many as a slot of the scratch makes of it.
// After an error some of it may have been begun, here or in the copy queues, and not all ranks are
// told of an end. most_chunk_bytes: 0, or how large a chunk may be.
Status launch_by_copy_engines(std::span<const CopyEnginePart> parts,
                              std::uint64_t most_chunk_bytes = 0);

}  // namespace arcomm
