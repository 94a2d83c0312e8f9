// Every rank pulls what it needs from all ranks at once. Copies of 16 bytes go from every rank's
// input into shared memory, past the registers, three stages ahead of the thread that combines them
// in rank order. So a thread waits for a link once and not for each vector. A thread reads only
// what it asked for itself, so no barrier stands between the stages. Block b of all ranks meet
// before (all inputs are there) and after (all inputs were read, all outputs are written).
//
// Each rank reads everything and writes its own output where that is allowed and pays: out of
// place, and between two ranks or while the operation is small. Nothing is then stored over a link.
// In place it would overwrite what others still read, and between more ranks it reads ranks / 2
// times what two_shot moves; there rank r alone touches shard r, in everybody's input and output,
// as in two_shot.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/flash_shape.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"

namespace arcomm::device {
namespace {

struct FlashShape {
  ElementRange elements;    // what this rank reads
  bool everywhere = false;  // results go to everybody's output, not only to this rank's
  bool vectors = false;     // all pointers lie on 16 bytes
};

// A block gets 48 KB of shared memory without asking for more.
static_assert(flash_shared_bytes(2) <= 48 * 1024 && flash_shared_bytes(4) <= 48 * 1024 &&
              flash_shared_bytes(8) <= 48 * 1024);

// kRanks: known at compile time, or 0.
template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(512)
    flash(const __grid_constant__ CudaAllReduce call, const __grid_constant__ FlashShape shape) {
  using Stored = typename Format::Stored;
  using Sixteen = Pack<Format, static_cast<int>(kFlashVectorBytes)>;
  constexpr std::uint32_t kCount = Sixteen::kCount;
  using Vector = Moved<Stored, uint4>;
  extern __shared__ uint4 stages[];
  const std::uint32_t ranks = kRanks != 0 ? kRanks : call.ranks;
  const std::uint32_t epoch = begin_epoch(call);
  LaunchBudget budget = budget_of(call);
  if (epoch == 0 || !meet_at_start(call, epoch, budget)) return end_epoch(call, true);

  const FlashLane lane = flash_lane(shape.elements, call.dtype, gridDim.x, blockIdx.x);
  const std::uint64_t thread = std::uint64_t{lane.block} * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{lane.blocks} * blockDim.x;
  const std::uint64_t vectors = shape.vectors ? lane.elements.size() / kCount : 0;
  const auto at = [&](const void* base, std::uint64_t i) {
    return reinterpret_cast<const uint4*>(static_cast<const Stored*>(base) + lane.elements.first) +
           i;
  };
  const auto slot = [&](std::uint32_t stage, std::uint32_t rank) {
    return stages + (stage * ranks + rank) * blockDim.x + threadIdx.x;
  };
  // Every call makes one group of copies, even an empty one, so that groups can be counted.
  const auto ask = [&](std::uint64_t i, std::uint32_t stage) {
    if (i < vectors) {
#pragma unroll
      for (std::uint32_t hop = 1; hop <= ranks; ++hop) {  // spread over the links, own input last
        const std::uint32_t rank = (call.rank + hop) % ranks;
        copy_async(slot(stage, rank), at(call.send[rank], i));
      }
    }
    commit_copies();
  };

  std::uint64_t next = thread;
#pragma unroll
  for (std::uint32_t stage = 0; stage + 1 < kFlashStages; ++stage, next += stride) ask(next, stage);
  std::uint32_t stage = 0;
  for (std::uint64_t i = thread; i < vectors; i += stride, next += stride) {
    // Into the stage that was read a turn ago.
    ask(next, stage == 0 ? kFlashStages - 1 : stage - 1);
    wait_for_copies<kFlashStages - 1>();
    Sixteen result;
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Vector part;
      part.whole = *slot(stage, rank);
      result.template combine_next<kOp>(part.elements, rank == 0);
    }
    Vector out;
    result.template store_to<kOp>(out.elements, ranks);
    if (shape.everywhere) {
#pragma unroll
      for (std::uint32_t hop = 1; hop <= ranks; ++hop) {
        *const_cast<uint4*>(at(call.recv[(call.rank + hop) % ranks], i)) = out.whole;
      }
    } else {
      *const_cast<uint4*>(at(call.recv[call.rank], i)) = out.whole;
    }
    stage = stage + 1 == kFlashStages ? 0 : stage + 1;
  }

  for (std::uint64_t i = lane.elements.first + vectors * kCount + thread; i < lane.elements.last;
       i += stride) {
    const Stored out = reduce_element<Format, kOp>(
        ranks, [&](std::uint32_t rank) { return static_cast<const Stored*>(call.send[rank])[i]; });
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (shape.everywhere || rank == call.rank) static_cast<Stored*>(call.recv[rank])[i] = out;
    }
  }
  end_epoch(call, !meet_at_end(call, epoch, budget));
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  return with_ranks<Format, kOp>(
      ranks, [&]<std::uint32_t kRanks>() { return &flash<Format, kOp, kRanks>; });
}

bool any_in_place(const CudaAllReduce& call) {
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (call.send[rank] == call.recv[rank]) return true;
  }
  return false;
}

}  // namespace

cudaError_t launch_flash(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream) {
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  const bool whole = flash_reads_whole(bytes, call.ranks, any_in_place(call));
  const ElementRange elements =
      shard_range(call.count, call.dtype, whole ? 1 : call.ranks, whole ? 0 : call.rank);
  const FlashShape shape{
      .elements = elements, .everywhere = !whole, .vectors = lie_on(call, kFlashVectorBytes)};
  const std::uint32_t threads = flash_threads(call.ranks);
  // Not from `shape`: shards differ in size, and all ranks must come to the same number.
  if (blocks == 0) blocks = flash_blocks(bytes, call.ranks, any_in_place(call), call.most_blocks);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call,
                  {blocks, threads, flash_shared_bytes(call.ranks)}, stream, shape);
  });
}

cudaError_t load_flash(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
