// two_shot_ll128 as the daemon launches it.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/launch_exchange.cuh"
#include "kernels/all_reduce/two_shot_ll128.cuh"
#include "kernels/codec/table.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

struct LaunchShards {
  ElementRange ranges[kMaxGpuRanks];
  std::uint32_t longest = 0;  // packets
  bool vectors = false;       // own pointers lie on 16 bytes

  constexpr ElementRange of(std::uint32_t owner) const { return ranges[owner]; }
  constexpr std::uint32_t packets() const { return longest; }
};

template <typename Codec, ReduceOp kOp, std::uint32_t kBatch>
__global__ void __launch_bounds__(kLl128Threads)
    launched_two_shot_ll128(const __grid_constant__ CudaAllReduce call,
                            const __grid_constant__ LaunchShards shards) {
  LaunchExchange exchange(call);
  two_shot_ll128<Codec, kOp, kBatch>(exchange, shards);
}

template <typename Codec, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kIsUsual<typename Codec::Format, kOp>) {
    if (ranks == 2) return &launched_two_shot_ll128<Codec, kOp, 2>;
  }
  return &launched_two_shot_ll128<Codec, kOp, 4>;
}

}  // namespace

cudaError_t launch_two_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream) {
  LaunchShards shards;
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank)
    shards.ranges[rank] = shard_range(call.count, call.dtype, call.ranks, rank);
  // Of the own buffers alone: lines are the same whatever the peers' alignment is.
  shards.vectors = own_lie_on(call, sizeof(uint4));
  return with_line_kernel(call.codec, call.dtype, call.op, [&]<typename Codec, ReduceOp kOp>() {
    shards.longest = packets_of<Codec>(shards.of(0).size());
    if (blocks == 0) blocks = ll128_blocks(shards.longest, call.ranks - 1, call.most_blocks);
    return launch(kernel_for<Codec, kOp>(call.ranks), call, {blocks, kLl128Threads}, stream,
                  shards);
  });
}

cudaError_t load_two_shot_ll128(DType dtype, ReduceOp op) {
  return for_each_codec(dtype, op, [&]<typename Codec, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Codec, kOp>);
  });
}

}  // namespace arcomm::device
