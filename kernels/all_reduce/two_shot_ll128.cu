// Two hops of lines of 128 bytes, 124 of them data, and no fence: every rank pushes its part of
// shard p to rank p, p combines the parts in rank order and pushes the result to everybody. Between
// more than two ranks that is less traffic than one_shot_ll128. Only between GPUs that store such
// lines whole. Why two halves of the region are enough: see one_shot_ll128.cu; parts and results
// have areas of their own, so within an operation each line is written once.
//
// In place: what comes for shard p has my part in it, so that was read before.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/ll128.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

struct Shards {
  ElementRange of[kMaxCudaRanks];
  std::uint32_t packets = 0;  // of the longest
  bool vectors = false;       // own pointers lie on 16 bytes
};

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__global__ void __launch_bounds__(kLl128Threads)
    two_shot_ll128(const __grid_constant__ CudaAllReduce call,
                   const __grid_constant__ Shards shards) {
  using Elements = PacketElements<Format>;
  const void* send = call.send[call.rank];
  void* recv = call.recv[call.rank];
  const auto has = [&](std::uint32_t owner, std::uint64_t packet) {
    return packet * (kLl128PacketData / sizeof(typename Format::Stored)) < shards.of[owner].size();
  };
  // All that happens to packet p of any shard is up to block p % gridDim.x of every rank: a block
  // that found no room yet keeps only its like waiting. Its warps deal out one by one what goes to
  // and comes from others; each rank starts with another peer.
  const std::uint32_t peers = call.ranks - 1;
  const std::uint32_t mine_of_each =
      shards.packets / gridDim.x + (blockIdx.x < shards.packets % gridDim.x ? 1 : 0);
  const std::uint32_t of_others = mine_of_each * peers;
  const std::uint32_t first_of_others = threadIdx.x / kLl128Lanes;
  constexpr std::uint32_t kWarps = kLl128Threads / kLl128Lanes;
  const auto owner_of = [&](std::uint32_t i) { return (call.rank + 1 + i % peers) % call.ranks; };
  const auto packet_of = [&](std::uint32_t i) { return blockIdx.x + i / peers * gridDim.x; };

  const auto read = [&](std::uint32_t i) {
    const std::uint32_t owner = owner_of(i), packet = packet_of(i);
    if (i >= of_others || !has(owner, packet)) return LaneData{};
    return Elements(shards.of[owner], shards.vectors).read(send, packet);
  };
  LaneData next = read(first_of_others);  // while the epoch is on its way
  const std::uint32_t epoch = begin_epoch(call);
  if (epoch == 0) return end_epoch(call, true);
  LaunchBudget budget = budget_of(call);
  const auto part = [&](std::uint32_t owner, std::uint32_t from, std::uint64_t packet) {
    return ll128_packet(call.scratch[owner], two_shot_part_area(epoch, call.ranks, from) + packet);
  };
  const auto result_at = [&](std::uint32_t at, std::uint32_t owner, std::uint64_t packet) {
    return ll128_packet(call.scratch[at], two_shot_result_area(epoch, call.ranks, owner) + packet);
  };

  for (std::uint32_t i = first_of_others; i < of_others; i += kWarps) {
    const std::uint32_t owner = owner_of(i), packet = packet_of(i);
    const LaneData mine = next;
    next = read(i + kWarps);
    if (has(owner, packet)) store_packet(part(owner, call.rank, packet), mine, epoch);
  }

  const Elements own(shards.of[call.rank], shards.vectors);
  bool received = true;
  for (std::uint32_t packet = first_packet(); received && has(call.rank, packet);
       packet += packet_stride()) {
    const LaneData mine = own.read(send, packet);
    LaneData out;
    received = reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return part(call.rank, rank, packet); }, epoch,
        budget, out);
    if (!received) break;
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop)
      store_packet(result_at((call.rank + hop) % call.ranks, call.rank, packet), out, epoch);
    own.write(recv, packet, out);
  }

  budget.grow(kForResultsNs);
  for (std::uint32_t i = first_of_others; received && i < of_others; i += kWarps) {
    const std::uint32_t owner = owner_of(i), packet = packet_of(i);
    if (!has(owner, packet)) continue;
    Lines lines;
    received = receive_packet(lines, result_at(call.rank, owner, packet), owner, epoch, budget);
    if (!received) break;
    Elements(shards.of[owner], shards.vectors).write(recv, packet, lines.data());
  }
  end_epoch(call, !received);
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &two_shot_ll128<Format, kOp, 2>;
  }
  return &two_shot_ll128<Format, kOp, 4>;
}

}  // namespace

cudaError_t launch_two_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream) {
  Shards shards;
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank)
    shards.of[rank] = shard_range(call.count, call.dtype, call.ranks, rank);
  shards.packets =
      static_cast<std::uint32_t>(ll128_packets(shards.of[0].size() * size_of(call.dtype)));
  shards.vectors =
      own_lie_on(call, sizeof(uint4));  // lines are the same whatever the peers' alignment is
  if (blocks == 0) blocks = ll128_blocks(shards.packets, call.ranks - 1);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kLl128Threads}, stream,
                  shards);
  });
}

cudaError_t load_two_shot_ll128(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
