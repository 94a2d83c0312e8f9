// AllReduce whose traffic the GPUs' copy engines carry, for operations so large that links count
// and latency does not: every rank's part of shard p is copied to rank p in chunks, p combines them
// out of its own memory while the next chunk travels, and the result is copied to everybody. A copy
// engine moves 390 GB/s over NVLink where stores of processors move 340 to 366 (H200).
//
// No GPU waits for another here but by events that the host has put into streams, for work that is
// in streams already: nothing can hang, there is no deadline and nothing to abort, and what was
// begun ends after as long as the copies take. So it is for operations that all ranks have called.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/launch_cuda.h"
#include "proto/status.h"

namespace arcomm {

// One GPU's streams and events for this. Operations of several communicators may share them: one
// after the other, each behind its ranks' own streams. Move-only owner; destroyed once all has
// ended. One thread.
class CopyLanes {
 public:
  static Result<CopyLanes> create(int ordinal);

  CopyLanes() = default;
  ~CopyLanes();
  CopyLanes(CopyLanes&& other) noexcept { swap(other); }
  CopyLanes& operator=(CopyLanes&& other) noexcept {
    swap(other);
    return *this;
  }

  // cudaStream_t; peers take turns in them.
  void* scatter(std::uint32_t hop) const { return streams_[hop % kEach]; }
  void* gather(std::uint32_t hop) const { return streams_[kEach + hop % kEach]; }
  std::span<void* const> scatters() const { return std::span(streams_).first(kEach); }
  std::span<void* const> gathers() const { return std::span(streams_).last(kEach); }
  // Has everything in them run?
  Result<bool> idle() const;
  // A cudaEvent_t that nobody is going to be told to wait for any more.
  void* next_event();

 private:
  static constexpr std::uint32_t kEach = 3;  // few, as streams share the GPU's 32 channels
  static constexpr std::size_t kEvents = 256;

  void swap(CopyLanes& other) {
    std::swap(ordinal_, other.ordinal_);
    std::swap(streams_, other.streams_);
    std::swap(events_, other.events_);
    std::swap(next_, other.next_);
  }

  int ordinal_ = -1;
  std::array<void*, std::size_t{2} * kEach> streams_{};
  std::vector<void*> events_;
  std::size_t next_ = 0;
};

// One rank's part.
struct CopyEnginePart {
  CudaAllReduce call;      // as launch_all_reduce() takes it, for CudaAlgorithm::CopyEngine
  void* stream = nullptr;  // the rank's: begins behind what is in it, and ends in it
  CopyLanes* lanes = nullptr;
};

// All ranks' parts, by rank. Enqueuing takes the caller 10 to 15 us per chunk and rank. After an
// error some of it may have been begun, here or in the lanes, and not all ranks are told of an end.
// most_chunk_bytes: 0, or less than the scratch has room for.
Status launch_by_copy_engines(std::span<const CopyEnginePart> parts,
                              std::uint64_t most_chunk_bytes = 0);

}  // namespace arcomm
