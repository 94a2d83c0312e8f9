// How the flash kernel cuts an operation up: pure arithmetic, proven in tests/unit/kernels.
#pragma once

#include <cstdint>

#include "kernels/launch/launch_cuda.h"
#include "kernels/partition.h"

namespace arcomm {

// Copies that a thread has under way: what 48 KB of shared memory hold of 512 threads and two
// ranks.
inline constexpr std::uint32_t kFlashStages = 3;
// Blocks that share a lane, so that neighbouring tiles are on different SMs.
inline constexpr std::uint32_t kFlashBlocksPerLane = 4;
inline constexpr std::uint64_t kFlashVectorBytes = 16;
// Between more than two GPUs, sending every input over every link pays only while latency counts.
inline constexpr std::uint64_t kMaxFlashWholeBytes = 512ull * 1024;

// As many threads as let all stages fit into the 48 KB of shared memory that a block gets without
// asking for more.
constexpr std::uint32_t flash_threads(std::uint32_t ranks) {
  return ranks <= 2 ? 512 : ranks <= 4 ? 256 : 128;
}
constexpr std::uint32_t flash_shared_bytes(std::uint32_t ranks) {
  return kFlashStages * ranks * flash_threads(ranks) *
         static_cast<std::uint32_t>(kFlashVectorBytes);
}

// Whether every rank reads everything and writes its own output, or reads its shard and writes it
// into everybody's. The same on all ranks, since it decides what each of them writes.
constexpr bool flash_reads_whole(std::uint64_t bytes, std::uint32_t ranks, bool in_place) {
  return !in_place && (ranks == 2 || bytes <= kMaxFlashWholeBytes);
}

// A lane is a run of neighbouring elements, which its blocks share. Block b is of lane b modulo the
// number of lanes.
struct FlashLane {
  ElementRange elements;
  std::uint32_t block = 0;  // which of the lane's blocks
  std::uint32_t blocks = 1;
};

// Precondition: block < blocks; `all` starts on a whole cache line of its buffer.
constexpr FlashLane flash_lane(ElementRange all, DType dtype, std::uint32_t blocks,
                               std::uint32_t block) {
  const std::uint32_t lanes = blocks < kFlashBlocksPerLane ? 1 : blocks / kFlashBlocksPerLane;
  const std::uint32_t lane = block % lanes;
  const ElementRange part = shard_range(all.size(), dtype, lanes, lane);
  return {.elements = {all.first + part.first, all.first + part.last},
          .block = block / lanes,
          .blocks = (blocks - lane + lanes - 1) / lanes};
}

}  // namespace arcomm
