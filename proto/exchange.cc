#include "proto/exchange.h"

#include <algorithm>

namespace arcomm {
namespace {

constexpr std::uint64_t kKiB = 1024;

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

std::uint32_t blocks_for(std::uint64_t packets, std::uint64_t packets_each, InStreamRoom room) {
  const std::uint64_t most = std::min(room.blocks, kMaxInStreamBlocks);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(divide_up(packets, packets_each), 1, most));
}

const char* name_of(InStreamAlgorithm algorithm) {
  switch (algorithm) {
    case InStreamAlgorithm::OneShotLl16:
      return "one_shot_ll16";
    case InStreamAlgorithm::OneShotLl128:
      return "one_shot_ll128";
    case InStreamAlgorithm::TwoShotLl128:
      return "two_shot_ll128";
    case InStreamAlgorithm::PairLl128:
      return "pair_ll128";
  }
  return "none";
}

}  // namespace

// Bounds and numbers of blocks were measured between two and four H200. One hop is spread over the
// SMs before their warps are used up, as latency is what counts; two hops keep more of what
// belongs together on one.
InStreamShape in_stream_shape(std::uint64_t bytes, std::uint32_t ranks, DType dtype,
                              InStreamRoom room) {
  if (bytes == 0 || ranks < 2 || ranks > kMaxGpuRanks || !has_in_stream_kernel(dtype)) return {};
  if (room.blocks == 0 || bytes > room.most_bytes) return {};
  constexpr std::uint64_t kLl16BlockBytes = std::uint64_t{kInStreamThreads} * 8;
  const std::uint64_t most_ll16 = (ranks == 2 || !room.atomic_128b_stores ? 64 : 32) * kKiB;
  if (bytes <= most_ll16) {
    const std::uint64_t blocks = divide_up(bytes, kLl16BlockBytes);
    if (blocks > room.blocks) return {};
    return {.algorithm = InStreamAlgorithm::OneShotLl16,
            .blocks = static_cast<std::uint32_t>(blocks)};
  }
  if (!room.atomic_128b_stores) return {};
  const std::uint64_t most_one_shot = (ranks == 2 ? 16 * 1024 : ranks <= 4 ? 256 : 128) * kKiB;
  if (bytes <= most_one_shot) {
    const std::uint64_t packets = divide_up(bytes, kInStreamPacketData);
    const std::uint32_t blocks = blocks_for(packets, 4, room);
    const std::uint32_t most =
        (ranks == 2 ? kInStreamLaps * kInStreamSlots : 1) * kInStreamPartPackets;
    if (divide_up(packets, blocks) > most) return {};
    return {
        .algorithm = ranks == 2 ? InStreamAlgorithm::PairLl128 : InStreamAlgorithm::OneShotLl128,
        .blocks = blocks};
  }
  if (ranks == 2 || bytes > 2048 * kKiB) return {};
  // The longest shard: whole cache lines, as partition.h cuts them.
  constexpr std::uint64_t kCacheLine = 64, kOfAllPeers = 12;
  const std::uint64_t shard = divide_up(divide_up(bytes, kCacheLine), ranks) * kCacheLine;
  const std::uint64_t packets = divide_up(shard, kInStreamPacketData);
  const std::uint32_t blocks = blocks_for(packets * (ranks - 1), kOfAllPeers, room);
  if (divide_up(packets, blocks) > kInStreamPartPackets) return {};
  return {.algorithm = InStreamAlgorithm::TwoShotLl128, .blocks = blocks};
}

std::vector<InStreamKernel> all_in_stream_kernels() {
  std::vector<InStreamKernel> all;
  constexpr std::size_t kEach = std::size_t{kDTypes} * kReduceOps;
  for (std::size_t i = 0; i < kInStreamAlgorithms * kEach; ++i) {
    const auto dtype = static_cast<DType>(i / kReduceOps % kDTypes);
    if (!has_in_stream_kernel(dtype)) continue;
    all.push_back(
        {static_cast<InStreamAlgorithm>(i / kEach), dtype, static_cast<ReduceOp>(i % kReduceOps)});
  }
  return all;
}

std::string in_stream_kernel_name(InStreamAlgorithm algorithm, DType dtype, ReduceOp op) {
  return std::string("arcomm_") + name_of(algorithm) + "_" + std::string(text_of(dtype)) + "_" +
         std::string(text_of(op));
}

}  // namespace arcomm
