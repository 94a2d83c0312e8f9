// Stores only, for what the links must be kept full with: every rank pushes its part of shard p
// into rank p's scratch, p combines the parts in rank order out of its own memory and pushes the
// result into everybody's output. Loads over a link would take the way of the stores that come
// back.
//
// A lane is a block, the same one on every rank, and takes every lanes-th tile of each shard. Parts
// travel through a ring of slots per lane and sender: `sent` counts what a sender has put in,
// `freed` what the reader has taken out; each lies in the memory of the one who waits for it. Both
// start with the epoch, so that they need no clearing. A launch ends with all lanes met, hence all
// slots free; or cancelled, with parts in slots that nobody reads: what they count for is an epoch
// that no later launch waits for, and whose counters are below all that it does wait for.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kLag =
    2;                      // tiles that are pushed before the first is reduced; below kStreamSlots
constexpr int kUnroll = 4;  // vectors that a thread has under way
constexpr std::uint32_t kMinTile = 4 * 1024;
constexpr std::uint64_t kVectorBytes = 16;

struct StreamShape {
  std::uint32_t tile_elements = 0;  // whole cache lines; at most kStreamTileBytes
  bool vectors = false;             // all pointers lie on 16 bytes
};

template <typename Stored>
union Vector {
  uint4 whole;
  Stored elements[kVectorBytes / sizeof(Stored)];
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
class StreamLane {
 public:
  using Stored = typename Format::Stored;
  static constexpr int kCount = kVectorBytes / sizeof(Stored);

  __device__ __forceinline__ StreamLane(const CudaAllReduce& call, const StreamShape& shape,
                                        std::uint32_t epoch, Patience& patience)
      : call_(call),
        shape_(shape),
        patience_(patience),
        epoch_(std::uint64_t{epoch} << 32),
        own_(scratch_of(call, call.rank)) {}

  __device__ __forceinline__ std::uint32_t ranks() const {
    return kRanks != 0 ? kRanks : call_.ranks;
  }

  __device__ __forceinline__ ElementRange tile(std::uint32_t owner, std::uint32_t turn) const {
    const ElementRange shard = shard_range(call_.count, call_.dtype, ranks(), owner);
    const std::uint64_t first =
        shard.first + (blockIdx.x + std::uint64_t{turn} * gridDim.x) * shape_.tile_elements;
    if (first >= shard.last) return {shard.last, shard.last};
    const std::uint64_t left = shard.last - first;
    return {first, first + (left < shape_.tile_elements ? left : shape_.tile_elements)};
  }

  // My part of every peer's tile of this turn. False: the wait for room failed.
  __device__ __forceinline__ bool push(std::uint32_t turn) {
    const auto* send = static_cast<const Stored*>(call_.send[call_.rank]);
    const bool waits = turn >= kStreamSlots;
    if (waits && !all_reached(&Scratch::freed, epoch_ | (turn + 1 - kStreamSlots))) return false;
#pragma unroll
    for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
      const std::uint32_t peer = (call_.rank + hop) % ranks();
      const ElementRange range = tile(peer, turn);
      copy(slot(peer, call_.rank, turn), send + range.first,
           static_cast<std::uint32_t>(range.last - range.first));
    }
    __syncthreads();
    const std::uint32_t peer = threadIdx.x;
    if (peer < ranks() && peer != call_.rank)
      store_release(&scratch_of(call_, peer)->sent[blockIdx.x][call_.rank], epoch_ | (turn + 1));
    return true;
  }

  // My tile of this turn, out of the slots and into everybody's output. False: a part did not come.
  __device__ __forceinline__ bool reduce(std::uint32_t turn) {
    if (!all_reached(&Scratch::sent, epoch_ | (turn + 1))) return false;
    const ElementRange range = tile(call_.rank, turn);
    const auto count = static_cast<std::uint32_t>(range.last - range.first);
    const auto* mine = static_cast<const Stored*>(call_.send[call_.rank]) + range.first;
    const std::uint32_t vectors = shape_.vectors ? count / kCount : 0;
    std::uint32_t i = threadIdx.x;
    for (; i + (kUnroll - 1) * kThreads < vectors; i += kUnroll * kThreads) {
      reduce_vectors<kUnroll>(range.first, turn, i);
    }
    for (; i < vectors; i += kThreads) reduce_vectors<1>(range.first, turn, i);
    for (i = vectors * kCount + threadIdx.x; i < count; i += kThreads) {
      Pack<Format, static_cast<int>(sizeof(Stored))> result;
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        const Stored part[1] = {rank == call_.rank ? mine[i]
                                                   : __ldcg(slot(call_.rank, rank, turn) + i)};
        if (rank == 0) {
          result.widen(part);
        } else {
          result.template combine_next<kOp>(part);
        }
      }
      Stored out[1];
      result.template store_to<kOp>(out, ranks());
      for (std::uint32_t rank = 0; rank < ranks(); ++rank)
        static_cast<Stored*>(call_.recv[rank])[range.first + i] = out[0];
    }
    // Relaxed: what was read out of the slots has arrived, or its sums could not have been stored.
    __syncthreads();
    const std::uint32_t peer = threadIdx.x;
    if (peer < ranks() && peer != call_.rank)
      store_relaxed(&scratch_of(call_, peer)->freed[blockIdx.x][call_.rank], epoch_ | (turn + 1));
    return true;
  }

 private:
  using Counters = std::uint64_t[kMaxCudaBlocks][kMaxCudaRanks];

  // Where `from` leaves its part for `at`.
  __device__ __forceinline__ Stored* slot(std::uint32_t at, std::uint32_t from,
                                          std::uint32_t turn) const {
    const std::uint64_t index =
        (std::uint64_t{blockIdx.x} * kStreamSlots + turn % kStreamSlots) * ranks() + from;
    return reinterpret_cast<Stored*>(static_cast<unsigned char*>(call_.scratch[at]) +
                                     kStreamOffset + index * kStreamTileBytes);
  }

  // Vectors i, i + kThreads, ... of my tile that starts at `first`: all loads before the first use.
  template <int kVectors>
  __device__ __forceinline__ void reduce_vectors(std::uint64_t first, std::uint32_t turn,
                                                 std::uint32_t i) const {
    Pack<Format, kVectorBytes> results[kVectors];
    const auto* mine =
        reinterpret_cast<const uint4*>(static_cast<const Stored*>(call_.send[call_.rank]) + first);
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      Vector<Stored> parts[kVectors];
      const auto* theirs = reinterpret_cast<const uint4*>(slot(call_.rank, rank, turn));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        parts[v].whole =
            rank == call_.rank ? mine[i + v * kThreads] : __ldcg(theirs + i + v * kThreads);
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (rank == 0) {
          results[v].widen(parts[v].elements);
        } else {
          results[v].template combine_next<kOp>(parts[v].elements);
        }
      }
    }
    Vector<Stored> out[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) results[v].template store_to<kOp>(out[v].elements, ranks());
#pragma unroll
    for (std::uint32_t hop = 1; hop <= ranks(); ++hop) {
      auto* recv = reinterpret_cast<uint4*>(
          static_cast<Stored*>(call_.recv[(call_.rank + hop) % ranks()]) + first);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) recv[i + v * kThreads] = out[v].whole;
    }
  }

  __device__ __forceinline__ void copy(Stored* to, const Stored* from, std::uint32_t count) const {
    const std::uint32_t vectors = shape_.vectors ? count / kCount : 0;
    std::uint32_t i = threadIdx.x;
    for (; i + (kUnroll - 1) * kThreads < vectors; i += kUnroll * kThreads) {
      uint4 moved[kUnroll];
#pragma unroll
      for (int v = 0; v < kUnroll; ++v)
        moved[v] = reinterpret_cast<const uint4*>(from)[i + v * kThreads];
#pragma unroll
      for (int v = 0; v < kUnroll; ++v) reinterpret_cast<uint4*>(to)[i + v * kThreads] = moved[v];
    }
    for (; i < vectors; i += kThreads)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    for (i = vectors * kCount + threadIdx.x; i < count; i += kThreads) to[i] = from[i];
  }

  __device__ __forceinline__ bool all_reached(Counters Scratch::*counters, std::uint64_t value) {
    bool failed = false;
    const std::uint32_t peer = threadIdx.x;
    if (peer < ranks() && peer != call_.rank) {
      while (load_acquire(&(own_->*counters)[blockIdx.x][peer]) < value && !failed)
        failed = !patience_.goes_on(peer);
    }
    return __syncthreads_or(failed) == 0;
  }

  const CudaAllReduce& call_;
  const StreamShape& shape_;
  Patience& patience_;
  const std::uint64_t epoch_;
  Scratch* own_;
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(kThreads)
    stream(const __grid_constant__ CudaAllReduce call, const __grid_constant__ StreamShape shape,
           std::uint32_t turns) {
  Scratch* own = scratch_of(call, call.rank);
  const std::uint32_t epoch = begin_epoch(call);
  const auto finished = [](Scratch* at, std::uint32_t from) {
    return &at->finished[blockIdx.x][from];
  };
  if (epoch == 0) return end_epoch(call, true);
  // No meeting before: who writes into another's output has that one's part, so its stream has come
  // here.
  Patience patience(own, call.timeout_ns);
  StreamLane<Format, kOp, kRanks> lane(call, shape, epoch, patience);
  for (std::uint32_t turn = 0; turn < turns + kLag; ++turn) {
    if (turn < turns && !lane.push(turn)) return end_epoch(call, true);
    if (turn >= kLag && !lane.reduce(turn - kLag)) return end_epoch(call, true);
  }
  end_epoch(call, !meet(call, finished, epoch, patience));
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &stream<Format, kOp, 2>;
    if (ranks == 4) return &stream<Format, kOp, 4>;
    if (ranks == 8) return &stream<Format, kOp, 8>;
  }
  return &stream<Format, kOp, 0>;
}

}  // namespace

cudaError_t launch_stream(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t queue) {
  if (blocks == 0) blocks = kDefaultCudaBlocks;
  const std::uint64_t shard_bytes =
      (call.count * size_of(call.dtype) + call.ranks - 1) / call.ranks;
  // Several tiles per lane where there is enough for it, so that pushing and reducing overlap.
  const std::uint64_t tile_bytes = std::clamp<std::uint64_t>(
      shard_bytes / (std::uint64_t{blocks} * 4), kMinTile, kStreamTileBytes);
  const StreamShape shape{
      .tile_elements = static_cast<std::uint32_t>(tile_elements(call.dtype, tile_bytes)),
      .vectors = lie_on(call, kVectorBytes)};
  const std::uint64_t tiles =
      tile_count(shard_range(call.count, call.dtype, call.ranks, 0).size(), shape.tile_elements);
  blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tiles, 1, blocks));
  const auto turns = static_cast<std::uint32_t>((tiles + blocks - 1) / blocks);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kThreads}, queue, shape,
                  turns);
  });
}

cudaError_t load_stream(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
