// AllReduce whose traffic the GPUs' copy engines carry, for operations so large that links count
// and latency does not: every rank's part of shard p is copied to rank p in chunks, p combines them
// out of its own memory while the next chunk travels, and the result is copied to everybody. A copy
// engine moves 390 GB/s over NVLink where stores of SMs move 340 to 366 (H200).
//
// No GPU waits for another here but by events, for work that is in queues already: nothing can
// hang, there is no deadline and nothing to abort, and what was begun ends after as long as the
// copies take, and as SMs are free to combine. So it is for operations that all ranks have called.
// Operations of several communicators may share queues: one after the other. Thread: the worker's;
// never blocks.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/exec/gpu/hardware/gpu_queues.h"

namespace arcomm {

// One rank's part.
struct CopyPart {
  GpuQueues* queues = nullptr;  // of the rank's GPU
  // The rank's: the part begins behind what is in its launches, and ends in them.
  std::uint32_t queue = 0;
  const CudaAllReduce* call = nullptr;  // as launch() takes it, for CudaAlgorithm::CopyEngine
};

// The parts of all ranks, by rank. Enqueuing takes the caller 10 to 15 us per chunk and rank; a
// shard has two chunks, or where a rank's output is its input as many as a slot of the scratch
// makes of it. After an error some of it may have been begun, and not all ranks are told of an end.
// most_chunk_bytes: 0, or how large a chunk may be.
Status launch_by_copy_engines(std::span<const CopyPart> parts, std::uint32_t parity,
                              std::uint64_t most_chunk_bytes);

}  // namespace arcomm
