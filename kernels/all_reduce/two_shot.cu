// Rank r alone touches shard r: it reads the shard from everybody's input, combines it in rank
// order and writes it into everybody's output, over the links and without a copy in between. So it
// is safe in place. Block b of all ranks meet before (all inputs are there) and after (all outputs
// are).
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

// Vectors that a thread asks for at once. Of eight ranks they are 128 registers already, all that a
// thread of 512 may have.
constexpr int kUnroll = static_cast<int>(kTwoShotUnroll);

// kRanks: known at compile time, or 0.
template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(512)
    two_shot(const __grid_constant__ CudaAllReduce call, const __grid_constant__ ElementRange shard,
             bool vectors) {
  using Stored = typename Format::Stored;
  using Sixteen = Pack<Format, 16>;
  constexpr int kCount = Sixteen::kCount;
  const std::uint32_t ranks = kRanks != 0 ? kRanks : call.ranks;
  using Vector = Moved<Stored, uint4>;
  const std::uint32_t epoch = begin_epoch(call);
  LaunchBudget budget = budget_of(call);
  if (epoch == 0 || !meet_at_start(call, epoch, budget)) return end_epoch(call, true);

  const std::uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t done = shard.first;
  if (vectors) {
    const std::uint64_t count = shard.size() / kCount;
    const auto at = [&](const void* base, std::uint64_t i) {
      return reinterpret_cast<const uint4*>(static_cast<const Stored*>(base) + shard.first) + i;
    };
    const auto reduce = [&]<bool kAll>(std::uint64_t i) {
      Sixteen results[kUnroll];
#pragma unroll
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        Vector loaded[kUnroll];
#pragma unroll
        for (int v = 0; v < kUnroll; ++v) {
          if (kAll || i + v * stride < count)
            loaded[v].whole = *at(call.send[rank], i + v * stride);
        }
#pragma unroll
        for (int v = 0; v < kUnroll; ++v) {
          results[v].template combine_next<kOp>(loaded[v].elements, rank == 0);
        }
      }
      Vector out[kUnroll];
#pragma unroll
      for (int v = 0; v < kUnroll; ++v) results[v].template store_to<kOp>(out[v].elements, ranks);
#pragma unroll
      for (std::uint32_t hop = 0; hop < ranks; ++hop) {
        const std::uint32_t rank = (call.rank + 1 + hop) % ranks;  // spread over the links
#pragma unroll
        for (int v = 0; v < kUnroll; ++v) {
          if (kAll || i + v * stride < count)
            *const_cast<uint4*>(at(call.recv[rank], i + v * stride)) = out[v].whole;
        }
      }
    };
    std::uint64_t i = thread;
    for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride)
      reduce.template operator()<true>(i);
    // The rest is asked for at once: each wait for a link takes more than a microsecond.
    if (i < count) reduce.template operator()<false>(i);
    done += count * kCount;
  }
  for (std::uint64_t i = done + thread; i < shard.last; i += stride) {
    const Stored out = reduce_element<Format, kOp>(
        ranks, [&](std::uint32_t rank) { return static_cast<const Stored*>(call.send[rank])[i]; });
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      static_cast<Stored*>(call.recv[rank])[i] = out;
  }
  end_epoch(call, !meet_at_end(call, epoch, budget));
}

constexpr std::uint32_t kThreads = kLaunchThreads;
constexpr std::uint64_t kVectorBytes = kTwoShotVector;

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  return with_ranks<Format, kOp>(
      ranks, [&]<std::uint32_t kRanks>() { return &two_shot<Format, kOp, kRanks>; });
}

}  // namespace

cudaError_t launch_two_shot(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream) {
  if (blocks == 0)
    blocks = two_shot_blocks(call.count * size_of(call.dtype), call.ranks, call.most_blocks);
  const ElementRange shard = shard_range(call.count, call.dtype, call.ranks, call.rank);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kThreads}, stream, shard,
                  lie_on(call, kVectorBytes));
  });
}

cudaError_t load_two_shot(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
