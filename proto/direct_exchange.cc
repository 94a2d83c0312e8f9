#include "proto/direct_exchange.h"

#include <algorithm>

namespace arcomm {
namespace {

constexpr std::uint64_t kKiB = 1024;

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

// `each`: packets that a block has on its hands for every one of its own. Spread over the
// processors before their warps are used up: latency is what counts.
std::uint32_t blocks_for(std::uint64_t packets, std::uint64_t each) {
  constexpr std::uint64_t kWarpsPerBlock = 4;
  const std::uint64_t wanted = std::min(divide_up(packets * each, kWarpsPerBlock), packets);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, kMaxDirectBlocks));
}

const char* name_of(DirectAlgorithm algorithm) {
  switch (algorithm) {
    case DirectAlgorithm::OneShotLl16:
      return "one_shot_ll16";
    case DirectAlgorithm::OneShotLl128:
      return "one_shot_ll128";
    case DirectAlgorithm::TwoShotLl128:
      return "two_shot_ll128";
  }
  return "none";
}

}  // namespace

// The bounds were measured with the kernels of these names that the daemon launches, between two
// and four H200.
DirectShape direct_shape(std::uint64_t bytes, std::uint32_t ranks, DType dtype, bool whole_lines) {
  if (bytes == 0 || ranks < 2 || ranks > kMaxDirectRanks || !has_direct_kernel(dtype)) return {};
  constexpr std::uint64_t kLl16Blocks = kDirectThreads * 8;  // bytes that a block takes
  const std::uint64_t most_ll16 = ranks == 2 ? 64 * kKiB : 32 * kKiB;
  if (bytes <= (whole_lines ? most_ll16 : kMaxDirectBlocks * kLl16Blocks)) {
    return {.algorithm = DirectAlgorithm::OneShotLl16,
            .blocks = static_cast<std::uint32_t>(divide_up(bytes, kLl16Blocks))};
  }
  if (!whole_lines) return {};
  const std::uint64_t most_one_shot = (ranks == 2 ? 1024 : ranks <= 4 ? 256 : 128) * kKiB;
  if (bytes <= most_one_shot) {
    const std::uint64_t packets = divide_up(bytes, kDirectPacketData);
    const std::uint32_t blocks = blocks_for(packets, 1);
    if (divide_up(packets, blocks) <= kDirectPackets)
      return {.algorithm = DirectAlgorithm::OneShotLl128, .blocks = blocks};
  }
  if (bytes > 1024 * kKiB) return {};
  // The longest shard: whole cache lines, as partition.h cuts them.
  constexpr std::uint64_t kCacheLine = 64;
  const std::uint64_t shard = divide_up(divide_up(bytes, kCacheLine), ranks) * kCacheLine;
  const std::uint64_t packets = divide_up(shard, kDirectPacketData);
  const std::uint32_t blocks = blocks_for(packets, ranks - 1);
  if (divide_up(packets, blocks) > kDirectPartPackets) return {};
  return {.algorithm = DirectAlgorithm::TwoShotLl128, .blocks = blocks};
}

std::string direct_kernel_name(DirectAlgorithm algorithm, DType dtype, ReduceOp op) {
  return std::string("arcomm_") + name_of(algorithm) + "_" + std::string(text_of(dtype)) + "_" +
         std::string(text_of(op));
}

}  // namespace arcomm
