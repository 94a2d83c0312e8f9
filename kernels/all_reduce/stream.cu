// For operations that must keep the links full. Every rank pushes its part of shard p into rank p's
// scratch; rank p combines the parts in rank order, out of its own memory, and pushes the result
// into everybody's output. Only stores cross the links: what a load fetches over a link comes back
// the way that the peers' stores take.
//
// A lane is a block, the same one on every rank, and has its tiles of every shard. Half of its
// warps push and half reduce, and neither half waits for the other: a release takes until all that
// was stored before it has arrived, and the links must not stand still meanwhile.
//
// Parts travel through a ring of slots per lane and sender. `sent` counts what the sender has put
// in, `freed` what the reader has taken out; each counter lies in the memory of the rank that waits
// for it. The upper half of a counter is the epoch, so counters need no clearing. A launch ends
// when all lanes have met, so all slots are free then. A cancelled launch may leave parts in slots
// that nobody reads: its counters belong to an epoch that no later launch waits for, and they are
// below all values that a later launch waits for.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/stream_shape.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

// Two teams are a block of 512 threads, as in the other kernels.
constexpr std::uint32_t kTeamThreads = 256;
constexpr std::uint32_t kThreads = 2 * kTeamThreads;
// Vectors that a thread has under way. Of eight ranks they are 128 registers already, all that a
// thread of 512 may have.
constexpr int kUnroll = 4;
constexpr std::uint64_t kVectorBytes = 16;

struct StreamShape {
  StreamTiles tiles;
  bool vectors = false;  // all pointers lie on 16 bytes
};

// Whether a counter has reached a value of its epoch. A counter of a later epoch has not: ranks
// meet at the end of an epoch, so a rank that is further has skipped this one, and its slots hold
// nothing for a rank that has not found that out yet.
__device__ __forceinline__ bool has_reached(std::uint64_t counter, std::uint64_t value) {
  return counter >> 32 == value >> 32 && counter >= value;
}

// The half of a block's warps that this thread belongs to.
class Team {
 public:
  // over: a word of the block, 0 at first. It tells a team that the other one has given up.
  __device__ __forceinline__ explicit Team(std::uint32_t& over) : over_(&over) {}

  __device__ __forceinline__ bool pushes() const { return threadIdx.x < kTeamThreads; }
  __device__ __forceinline__ std::uint32_t thread() const { return threadIdx.x % kTeamThreads; }
  __device__ __forceinline__ void give_up() { *over_ = 1; }
  __device__ __forceinline__ bool has_given_up() const { return *over_ != 0; }
  // __syncthreads() of the team alone.
  __device__ __forceinline__ void meet() const { sync_some(barrier(), kTeamThreads); }
  __device__ __forceinline__ bool meet_or(bool mine) const {
    return sync_some_or(barrier(), kTeamThreads, mine);
  }

 private:
  __device__ __forceinline__ std::uint32_t barrier() const { return pushes() ? 1 : 2; }

  volatile std::uint32_t* over_;
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
class StreamLane {
 public:
  using Stored = typename Format::Stored;
  static constexpr int kCount = kVectorBytes / sizeof(Stored);

  __device__ __forceinline__ StreamLane(const CudaAllReduce& call, const StreamShape& shape,
                                        std::uint32_t epoch, LaunchBudget& budget, Team team)
      : call_(call),
        shape_(shape),
        budget_(budget),
        team_(team),
        epoch_(std::uint64_t{epoch} << 32),
        own_(scratch_of(call, call.rank)) {}

  __device__ __forceinline__ std::uint32_t ranks() const {
    return kRanks != 0 ? kRanks : call_.ranks;
  }

  __device__ __forceinline__ ElementRange tile(std::uint32_t owner, std::uint32_t turn) const {
    const ElementRange shard = shard_range(call_.count, call_.dtype, ranks(), owner);
    return stream_tile(shard, shape_.tiles, gridDim.x, blockIdx.x, turn);
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
    team_.meet();
    const std::uint32_t peer = team_.thread();
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
    std::uint32_t i = team_.thread();
    for (; i + (kUnroll - 1) * kTeamThreads < vectors; i += kUnroll * kTeamThreads)
      reduce_vectors<true>(range.first, turn, i, vectors);
    // The rest is asked for at once: each wait for memory takes as long as a tile on the link.
    if (i < vectors) reduce_vectors<false>(range.first, turn, i, vectors);
    for (i = vectors * kCount + team_.thread(); i < count; i += kTeamThreads) {
      const Stored out = reduce_element<Format, kOp>(ranks(), [&](std::uint32_t rank) {
        return rank == call_.rank ? mine[i] : __ldcg(slot(call_.rank, rank, turn) + i);
      });
      for (std::uint32_t rank = 0; rank < ranks(); ++rank)
        static_cast<Stored*>(call_.recv[rank])[range.first + i] = out;
    }
    // Relaxed: all reads of the slots have ended, or their sums could not have been stored.
    team_.meet();
    const std::uint32_t peer = team_.thread();
    if (peer < ranks() && peer != call_.rank)
      store_relaxed(&scratch_of(call_, peer)->freed[blockIdx.x][call_.rank], epoch_ | (turn + 1));
    return true;
  }

 private:
  using Counters = std::uint64_t[kMaxCudaBlocks][kMaxGpuRanks];

  // Where `from` leaves its part for `at`.
  __device__ __forceinline__ Stored* slot(std::uint32_t at, std::uint32_t from,
                                          std::uint32_t turn) const {
    return reinterpret_cast<Stored*>(static_cast<unsigned char*>(call_.scratch[at]) +
                                     kStreamOffset +
                                     stream_slot_offset(ranks(), at, from, blockIdx.x, turn));
  }

  // kUnroll vectors of my tile that starts at `first`: i, i + kTeamThreads, and so on. All are
  // loaded before the first is used. kAll: all of them exist; otherwise those below `vectors` do.
  template <bool kAll>
  __device__ __forceinline__ void reduce_vectors(std::uint64_t first, std::uint32_t turn,
                                                 std::uint32_t i, std::uint32_t vectors) const {
    const auto is_there = [&](int v) { return kAll || i + v * kTeamThreads < vectors; };
    Pack<Format, kVectorBytes> results[kUnroll];
    const auto* mine =
        reinterpret_cast<const uint4*>(static_cast<const Stored*>(call_.send[call_.rank]) + first);
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      Moved<Stored, uint4> parts[kUnroll];
      const auto* theirs = reinterpret_cast<const uint4*>(slot(call_.rank, rank, turn));
#pragma unroll
      for (int v = 0; v < kUnroll; ++v) {
        if (is_there(v)) {
          parts[v].whole = rank == call_.rank ? mine[i + v * kTeamThreads]
                                              : __ldcg(theirs + i + v * kTeamThreads);
        }
      }
#pragma unroll
      for (int v = 0; v < kUnroll; ++v) {
        results[v].template combine_next<kOp>(parts[v].elements, rank == 0);
      }
    }
    Moved<Stored, uint4> out[kUnroll];
#pragma unroll
    for (int v = 0; v < kUnroll; ++v) results[v].template store_to<kOp>(out[v].elements, ranks());
#pragma unroll
    for (std::uint32_t hop = 1; hop <= ranks(); ++hop) {
      auto* recv = reinterpret_cast<uint4*>(
          static_cast<Stored*>(call_.recv[(call_.rank + hop) % ranks()]) + first);
#pragma unroll
      for (int v = 0; v < kUnroll; ++v) {
        if (is_there(v)) recv[i + v * kTeamThreads] = out[v].whole;
      }
    }
  }

  template <bool kAll>
  __device__ __forceinline__ void copy_vectors(Stored* to, const Stored* from, std::uint32_t i,
                                               std::uint32_t vectors) const {
    const auto is_there = [&](int v) { return kAll || i + v * kTeamThreads < vectors; };
    uint4 moved[kUnroll];
#pragma unroll
    for (int v = 0; v < kUnroll; ++v) {
      if (is_there(v)) moved[v] = reinterpret_cast<const uint4*>(from)[i + v * kTeamThreads];
    }
#pragma unroll
    for (int v = 0; v < kUnroll; ++v) {
      if (is_there(v)) reinterpret_cast<uint4*>(to)[i + v * kTeamThreads] = moved[v];
    }
  }

  __device__ __forceinline__ void copy(Stored* to, const Stored* from, std::uint32_t count) const {
    const std::uint32_t vectors = shape_.vectors ? count / kCount : 0;
    std::uint32_t i = team_.thread();
    for (; i + (kUnroll - 1) * kTeamThreads < vectors; i += kUnroll * kTeamThreads)
      copy_vectors<true>(to, from, i, vectors);
    if (i < vectors) copy_vectors<false>(to, from, i, vectors);
    for (i = vectors * kCount + team_.thread(); i < count; i += kTeamThreads) to[i] = from[i];
  }

  __device__ __forceinline__ bool all_reached(Counters Scratch::*counters, std::uint64_t value) {
    bool failed = false;
    const std::uint32_t peer = team_.thread();
    if (peer < ranks() && peer != call_.rank) {
      while (!has_reached(load_acquire(&(own_->*counters)[blockIdx.x][peer]), value) && !failed)
        failed = team_.has_given_up() || !budget_.goes_on(peer);
    }
    if (failed) team_.give_up();
    return !team_.meet_or(failed);
  }

  const CudaAllReduce& call_;
  const StreamShape& shape_;
  LaunchBudget& budget_;
  Team team_;
  const std::uint64_t epoch_;
  Scratch* own_;
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(kThreads)
    stream(const __grid_constant__ CudaAllReduce call, const __grid_constant__ StreamShape shape) {
  __shared__ std::uint32_t over;
  if (threadIdx.x == 0) over = 0;
  Scratch* own = scratch_of(call, call.rank);
  const std::uint32_t epoch = begin_epoch(call);  // all threads meet there
  if (epoch == 0) return end_epoch(call, true);
  // The ranks need not meet before: a rank writes into another's output once it has that one's
  // part, so that one's stream has come to this operation.
  LaunchBudget budget = budget_of(call);
  Team team(over);
  StreamLane<Format, kOp, kRanks> lane(call, shape, epoch, budget, team);
  bool goes_on = true;
  if (team.pushes()) {
    // A pusher waits for room, and the peer that makes it waits for everybody's parts. The rank to
    // name is the one whose part did not come. So pushers wait twice as long as reducers, which
    // then give up first, whichever began to wait first.
    budget.grow(call.timeout_ns + kForResultsNs);
    for (std::uint32_t turn = 0; turn < shape.tiles.turns && goes_on; ++turn)
      goes_on = lane.push(turn);
  } else {
    for (std::uint32_t turn = 0; turn < shape.tiles.turns && goes_on; ++turn)
      goes_on = lane.reduce(turn);
  }
  if (__syncthreads_or(!goes_on) != 0) return end_epoch(call, true);
  LaunchBudget for_results({own, call.timeout_ns + kForResultsNs});
  end_epoch(call, !meet_at_end(call, epoch, for_results));
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  return with_ranks<Format, kOp>(
      ranks, [&]<std::uint32_t kRanks>() { return &stream<Format, kOp, kRanks>; });
}

}  // namespace

cudaError_t launch_stream(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t queue) {
  if (blocks == 0) blocks = call.most_blocks;
  const std::uint64_t tile_bytes =
      stream_tile_bytes(call.count * size_of(call.dtype), call.ranks, blocks);
  const std::uint64_t shard = shard_range(call.count, call.dtype, call.ranks, 0).size();
  blocks = stream_blocks(call.count, call.dtype, call.ranks, blocks);
  const StreamShape shape{.tiles = stream_tiles(shard, call.dtype, tile_bytes, blocks),
                          .vectors = lie_on(call, kVectorBytes)};
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kThreads}, queue, shape);
  });
}

cudaError_t load_stream(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
