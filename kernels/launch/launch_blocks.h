// How many blocks a launched operation gets where nobody says: pure arithmetic, the same on every
// rank, proven in tests/unit/kernels. The kernels' launches and whoever counts what fits on a GPU
// go by it alike.
//
// Block b of a rank waits for block b of its peers: an operation ends only where all its blocks
// come to run. So its blocks should find room on every GPU of the communicator at a time, each with
// an SM of its own at worst: `most` is made of the GPU that has the fewest (most_launched_blocks()
// below).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/all_reduce/flash_shape.h"
#include "kernels/all_reduce/stream_shape.h"
#include "kernels/cuda_algorithms.h"
#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/launch_cuda.h"
#include "kernels/lines/ll128_layout.h"
#include "kernels/partition.h"

namespace arcomm {

inline constexpr std::uint32_t kLaunchThreads = 512;  // of a block, but for flash

constexpr std::uint32_t bounded_blocks(std::uint64_t wanted, std::uint32_t most) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, std::max(1U, most)));
}

// A thread per line while there are blocks left: only latency counts here.
constexpr std::uint32_t ll16_blocks(std::uint64_t bytes, std::uint32_t most) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{kLaunchThreads} * 8;
  return bounded_blocks(tile_count(bytes, kBlockBytes), most);
}

// How many blocks move so many packets, with `times` warps at work on each packet at once. Packets
// spread over the SMs before the warps of one SM are used up: only latency counts here.
constexpr std::uint32_t ll128_blocks(std::uint64_t packets, std::uint64_t times,
                                     std::uint32_t most) {
  constexpr std::uint64_t kWarpsPerBlock = 4;
  return bounded_blocks(std::min(tile_count(packets * times, kWarpsPerBlock), packets), most);
}

// A vector per thread while there are blocks left. Beyond that, as many blocks as make the last
// turn as full as the others, while there are few turns.
inline constexpr std::uint64_t kTwoShotVector = 16, kTwoShotUnroll = 4;
constexpr std::uint32_t two_shot_blocks(std::uint64_t bytes, std::uint32_t ranks,
                                        std::uint32_t most) {
  constexpr std::uint64_t kFewestFull = 64, kFewTurns = 4, kTurn = kLaunchThreads * kTwoShotUnroll;
  const std::uint64_t vectors = bytes / ranks / kTwoShotVector;
  const std::uint64_t turns = tile_count(vectors, std::max(1U, most) * kTurn);
  std::uint64_t blocks = vectors / kLaunchThreads;
  if (blocks > kFewestFull && turns <= kFewTurns)
    blocks = std::max(tile_count(vectors, turns * kTurn), kFewestFull);
  return bounded_blocks(blocks, most);
}

constexpr std::uint32_t flash_blocks(std::uint64_t bytes, std::uint32_t ranks, bool in_place,
                                     std::uint32_t most) {
  const std::uint64_t each = flash_reads_whole(bytes, ranks, in_place) ? bytes : bytes / ranks;
  return bounded_blocks(each / (flash_threads(ranks) * kFlashVectorBytes), most);
}

constexpr std::uint32_t stream_blocks(std::uint64_t count, DType dtype, std::uint32_t ranks,
                                      std::uint32_t most) {
  most = std::max(1U, most);
  const std::uint64_t tile_bytes = stream_tile_bytes(count * size_of(dtype), ranks, most);
  const std::uint64_t shard = shard_range(count, dtype, ranks, 0).size();
  return bounded_blocks(tile_count(shard, tile_elements(dtype, tile_bytes)), most);
}

// What an operation gets at most, whatever its buffers are. Its peers' blocks are not waited for by
// copies, whose kernels end by themselves: one is enough for them to go on; nor by one rank alone.
constexpr std::uint32_t launched_blocks(CudaAlgorithm algorithm, std::uint64_t count, DType dtype,
                                        std::uint32_t ranks, std::uint32_t most) {
  const std::uint64_t bytes = count * size_of(dtype);
  if (count == 0 || ranks < 2) return 0;
  switch (algorithm) {
    case CudaAlgorithm::OneShotLl16:
      return ll16_blocks(bytes, most);
    case CudaAlgorithm::TwoShot:
      return two_shot_blocks(bytes, ranks, most);
    case CudaAlgorithm::Stream:
      return stream_blocks(count, dtype, ranks, most);
    case CudaAlgorithm::Flash:
      return flash_blocks(bytes, ranks, false, most);
    case CudaAlgorithm::OneShotLl128:
      return ll128_blocks(ll128_packets(bytes), 1, most);
    case CudaAlgorithm::TwoShotLl128:
      return ll128_blocks(
          ll128_packets(shard_range(count, dtype, ranks, 0).size() * size_of(dtype)), ranks - 1,
          most);
    case CudaAlgorithm::CopyEngine:
      return 1;
    case CudaAlgorithm::Alone:
      return 0;
  }
  return most;
}

// Of a communicator whose GPU with the fewest SMs has so many, `spared` of which are for others
// (the resident grid, gates, a client's waiting kernel). 0: nobody knows how many SMs there are.
constexpr std::uint32_t most_launched_blocks(std::uint32_t fewest_sms, std::uint32_t spared) {
  if (fewest_sms == 0) return kDefaultCudaBlocks;
  return std::clamp(fewest_sms - std::min(fewest_sms, spared), 1U, kDefaultCudaBlocks);
}

}  // namespace arcomm
