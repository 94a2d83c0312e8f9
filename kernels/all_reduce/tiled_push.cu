// Every rank pushes all of its input into every other's scratch, tile by tile and by bulk copies,
// and each combines the tiles in rank order: one hop, and the registers never see what travels. A
// block is a pipeline of four steps whose tiles lie in shared memory: a warp loads tiles of the own
// input, a thread pushes each to the peers and tells them, a thread fetches what the peers have
// pushed out of the scratch, and the other warps combine both into the output.
//
// Block b of every rank works with block b of the others. Slots are a ring per block and sender;
// `sent` counts what has come, `freed` what was taken out, behind their epoch in the upper half, as
// in stream.cu. Halves of the region alternate by epoch, as one_shot_ll128.cu explains: so nobody
// waits at the end for others to have read.
//
// In place: what is combined comes out of shared memory, so an element is written when it has been
// read. A step that waits for another GPU has the operation's patience; the steps of one block wait
// for each other until one of those has given up.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/push_shape.h"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/partition.h"

namespace arcomm::device {
namespace {

constexpr std::uint32_t kWarpThreads = 32;
constexpr std::uint32_t kLoader = 0, kPusher = 1, kFetcher = 2, kFirstReducer = 3;  // warps
constexpr std::uint32_t kReducers = 8;
constexpr std::uint32_t kReducerThreads = kReducers * kWarpThreads;
constexpr std::uint32_t kThreads = kFirstReducer * kWarpThreads + kReducerThreads;
// Tiles that a pusher tells of at once. Telling takes 3 to 4 us whatever it tells of, and a
// SM does one of it at a time (H200): so it is what bounds the rate of a block.
constexpr std::uint32_t kBatch = 4;
static_assert(kBatch < kPushOwnStages);  // who waits for a stage has told of the others
constexpr std::uint32_t kUnroll = 2;
constexpr std::uint32_t kVectorBytes = 16;

struct TileShape {
  std::uint32_t bytes = 0;  // of a whole tile
  std::uint32_t tiles = 0;
  // Of this rank: the peers' pointers do not matter.
  bool send_vectors = false, recv_vectors = false;
};

struct Steps {
  PhaseBarrier loaded[kPushOwnStages], unused[kPushOwnStages];
  PhaseBarrier fetched[kPushPeerStages], combined[kPushPeerStages];
  std::uint32_t gave_up;
};

// One place in a ring of stages, and which time round it is.
template <std::uint32_t kStages>
struct Turn {
  std::uint32_t stage = 0, round = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, ++round;
  }
  __device__ __forceinline__ std::uint32_t parity() const { return round & 1U; }
  __device__ __forceinline__ std::uint32_t parity_before() const { return (round & 1U) ^ 1U; }
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
class PushLane {
 public:
  using Stored = typename Format::Stored;
  static constexpr std::uint32_t kCount = kVectorBytes / sizeof(Stored);

  __device__ __forceinline__ PushLane(const CudaAllReduce& call, const TileShape& shape,
                                      std::uint32_t epoch, Steps& steps, unsigned char* stages)
      : call_(call),
        shape_(shape),
        epoch_(epoch),
        steps_(steps),
        stages_(stages),
        own_(scratch_of(call, call.rank)),
        tiles_(shape.tiles > blockIdx.x ? (shape.tiles - blockIdx.x - 1) / gridDim.x + 1 : 0) {}

  // A warp.
  __device__ __forceinline__ void load() {
    const std::uint32_t lane = threadIdx.x % kWarpThreads;
    const auto* send = static_cast<const Stored*>(call_.send[call_.rank]);
    order_copies_behind_accesses();  // what was written before the call, by others
    Turn<kPushOwnStages> turn;
    std::uint32_t i = 0;
    for (; i < tiles_; ++i, turn.advance()) {
      if (turn.round != 0 && !wait(steps_.unused[turn.stage], turn.parity_before())) break;
      const ElementRange range = tile(i);
      const auto count = static_cast<std::uint32_t>(range.size());
      const std::uint32_t whole = shape_.send_vectors ? count / kCount * kCount : 0;
      auto* stage = reinterpret_cast<Stored*>(own_stage(turn.stage));
      for (std::uint32_t e = whole + lane; e < count; e += kWarpThreads)
        stage[e] = send[range.first + e];
      if (whole != count) order_copies_behind_accesses();
      __syncwarp();
      if (lane != 0) continue;
      const auto bytes = static_cast<std::uint32_t>(whole * sizeof(Stored));
      steps_.loaded[turn.stage].arrive_expecting(bytes);
      if (bytes != 0) bulk_load(stage, send + range.first, bytes, steps_.loaded[turn.stage]);
    }
    // A block must not end before what it has asked for has come.
    for (std::uint32_t last = 0; last < kPushOwnStages && last < i; ++last) {
      const std::uint32_t asked = i - 1 - last;
      while (!steps_.loaded[asked % kPushOwnStages].has_ended(asked / kPushOwnStages & 1U)) {
      }
    }
  }

  // One thread.
  __device__ __forceinline__ void push() {
    WaitBudget patience(own_, call_.timeout_ns + kForResultsNs);
    const std::uint32_t slots = push_slots(shape_.bytes);
    bool goes_on = true;
    for (std::uint32_t first = 0, last = 0; first < tiles_ && goes_on; first = last) {
      for (; last < tiles_ && last < first + kBatch; ++last) {
        const std::uint32_t i = last;
        const std::uint32_t stage = i % kPushOwnStages;
        goes_on = wait_alone(steps_.loaded[stage], i / kPushOwnStages & 1U) &&
                  (i < slots || has_room(i, slots, patience));
        if (!goes_on) break;
        const std::uint32_t bytes = bytes_on_the_way(i);
        for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
          const std::uint32_t peer = (call_.rank + hop) % ranks();
          bulk_store(slot(peer, call_.rank, i), own_stage(stage), bytes);
        }
      }
      wait_for_bulk_stores();
      for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
        Scratch* peer = scratch_of(call_, (call_.rank + hop) % ranks());
        store_release(&peer->sent[blockIdx.x][call_.rank], counted(last));
      }
      for (std::uint32_t i = first; i < last; ++i) steps_.unused[i % kPushOwnStages].arrive();
    }
  }

  // One thread.
  __device__ __forceinline__ void fetch() {
    WaitBudget patience(own_, call_.timeout_ns);
    Turn<kPushPeerStages> turn;
    std::uint32_t i = 0;
    for (; i < tiles_; ++i, turn.advance()) {
      if (turn.round != 0 && !wait_alone(steps_.combined[turn.stage], turn.parity_before())) break;
      if (!has_come(i, patience)) break;
      const std::uint32_t bytes = bytes_on_the_way(i);
      PhaseBarrier& fetched = steps_.fetched[turn.stage];
      fetched.arrive_expecting(bytes * (ranks() - 1));
      for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
        const std::uint32_t peer = (call_.rank + hop) % ranks();
        bulk_load(peer_stage(turn.stage, peer), slot(call_.rank, peer, i), bytes, fetched);
      }
    }
    for (std::uint32_t last = 0; last < kPushPeerStages && last < i; ++last) {
      const std::uint32_t asked = i - 1 - last;
      while (!steps_.fetched[asked % kPushPeerStages].has_ended(asked / kPushPeerStages & 1U)) {
      }
    }
  }

  // kReducers warps; `thread` of them all.
  __device__ __forceinline__ void combine(std::uint32_t thread) {
    const std::uint32_t slots = push_slots(shape_.bytes);
    Turn<kPushOwnStages> own;
    Turn<kPushPeerStages> peers;
    for (std::uint32_t i = 0; i < tiles_; ++i, own.advance(), peers.advance()) {
      if (!wait(steps_.loaded[own.stage], own.parity())) return;
      if (!wait(steps_.fetched[peers.stage], peers.parity())) return;
      if (thread == 0 && i + slots < tiles_) free_for_all(i + 1);
      const ElementRange range = tile(i);
      const auto count = static_cast<std::uint32_t>(range.size());
      const std::uint32_t vectors = count / kCount;
      auto* recv = static_cast<Stored*>(call_.recv[call_.rank]) + range.first;
      std::uint32_t v = thread;
      if (shape_.recv_vectors) {
        for (; v + (kUnroll - 1) * kReducerThreads < vectors; v += kUnroll * kReducerThreads)
          combine_vectors<kUnroll>(recv, own.stage, peers.stage, v);
        for (; v < vectors; v += kReducerThreads)
          combine_vectors<1>(recv, own.stage, peers.stage, v);
        v = vectors * kCount + thread;
      }
      for (; v < count; v += kReducerThreads) combine_element(recv, own.stage, peers.stage, v);
      __syncwarp();
      if (threadIdx.x % kWarpThreads != 0) continue;
      steps_.unused[own.stage].arrive();
      steps_.combined[peers.stage].arrive();
    }
  }

 private:
  union Vector {
    uint4 whole;
    Stored elements[kCount];
  };

  __device__ __forceinline__ std::uint32_t ranks() const {
    return kRanks != 0 ? kRanks : call_.ranks;
  }
  __device__ __forceinline__ ElementRange tile(std::uint32_t i) const {
    return tile_range(call_.count, shape_.bytes / sizeof(Stored),
                      blockIdx.x + std::uint64_t{i} * gridDim.x);
  }
  __device__ __forceinline__ std::uint32_t bytes_on_the_way(std::uint32_t i) const {
    const auto bytes = static_cast<std::uint32_t>(tile(i).size() * sizeof(Stored));
    return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  }
  __device__ __forceinline__ unsigned char* own_stage(std::uint32_t stage) const {
    return stages_ + stage * shape_.bytes;
  }
  __device__ __forceinline__ unsigned char* peer_stage(std::uint32_t stage,
                                                       std::uint32_t peer) const {
    const std::uint32_t place = peer < call_.rank ? peer : peer - 1;
    return stages_ + (kPushOwnStages + stage * (ranks() - 1) + place) * shape_.bytes;
  }
  // Where `from` leaves its tile for `at`.
  __device__ __forceinline__ unsigned char* slot(std::uint32_t at, std::uint32_t from,
                                                 std::uint32_t i) const {
    return static_cast<unsigned char*>(call_.scratch[at]) + push_offset(ranks()) +
           push_lane_offset(epoch_, ranks(), at, from, blockIdx.x) +
           i % push_slots(shape_.bytes) * shape_.bytes;
  }

  // For a whole warp: the same answer in all lanes. False: another step gave up.
  __device__ __forceinline__ bool wait(const PhaseBarrier& barrier, std::uint32_t parity) const {
    for (;;) {
      if (__all_sync(0xffff'ffffU, barrier.has_ended(parity))) return true;
      if (__any_sync(0xffff'ffffU, has_given_up())) return false;
    }
  }
  __device__ __forceinline__ bool wait_alone(const PhaseBarrier& barrier,
                                             std::uint32_t parity) const {
    while (!barrier.has_ended(parity)) {
      if (has_given_up()) return false;
    }
    return true;
  }
  __device__ __forceinline__ bool has_given_up() const {
    return *static_cast<const volatile std::uint32_t*>(&steps_.gave_up) != 0;
  }

  __device__ __forceinline__ std::uint64_t counted(std::uint32_t tiles) const {
    return std::uint64_t{epoch_} << 32 | tiles;
  }
  // Relaxed: what was read from the slots has arrived, and nothing else is said with it.
  __device__ __forceinline__ void free_for_all(std::uint32_t tiles) {
    for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
      Scratch* peer = scratch_of(call_, (call_.rank + hop) % ranks());
      store_relaxed(&peer->freed[blockIdx.x][call_.rank], counted(tiles));
    }
  }
  // False: the wait failed, here or in another step.
  __device__ __forceinline__ bool reaches(const std::uint64_t* word, std::uint32_t tiles,
                                          std::uint32_t peer, WaitBudget& patience) {
    while (load_acquire(word) < counted(tiles)) {
      if (patience.goes_on(peer) && !has_given_up()) continue;
      *static_cast<volatile std::uint32_t*>(&steps_.gave_up) = 1;
      return false;
    }
    return true;
  }
  // At all peers, for tile i.
  __device__ __forceinline__ bool has_room(std::uint32_t i, std::uint32_t slots,
                                           WaitBudget& patience) {
    for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
      const std::uint32_t peer = (call_.rank + hop) % ranks();
      if (!reaches(&own_->freed[blockIdx.x][peer], i + 1 - slots, peer, patience)) return false;
    }
    return true;
  }
  // From all peers, tile i.
  __device__ __forceinline__ bool has_come(std::uint32_t i, WaitBudget& patience) {
    for (std::uint32_t hop = 1; hop < ranks(); ++hop) {
      const std::uint32_t peer = (call_.rank + hop) % ranks();
      if (!reaches(&own_->sent[blockIdx.x][peer], i + 1, peer, patience)) return false;
    }
    order_copies_behind_accesses();
    return true;
  }

  template <int kVectors>
  __device__ __forceinline__ void combine_vectors(Stored* recv, std::uint32_t own,
                                                  std::uint32_t peers, std::uint32_t v) const {
    Vector out[kVectors];
    Pack<Format, kVectorBytes> results[kVectors];
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const auto* from = reinterpret_cast<const uint4*>(
          rank == call_.rank ? own_stage(own) : peer_stage(peers, rank));
#pragma unroll
      for (int u = 0; u < kVectors; ++u) {
        Vector part;
        part.whole = from[v + u * kReducerThreads];
        if (rank == 0) {
          results[u].widen(part.elements);
        } else {
          results[u].template combine_next<kOp>(part.elements);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kVectors; ++u) {
      results[u].template store_to<kOp>(out[u].elements, ranks());
      reinterpret_cast<uint4*>(recv)[v + u * kReducerThreads] = out[u].whole;
    }
  }
  __device__ __forceinline__ void combine_element(Stored* recv, std::uint32_t own,
                                                  std::uint32_t peers, std::uint32_t e) const {
    Pack<Format, static_cast<int>(sizeof(Stored))> result;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const auto* from = reinterpret_cast<const Stored*>(
          rank == call_.rank ? own_stage(own) : peer_stage(peers, rank));
      const Stored part[1] = {from[e]};
      if (rank == 0) {
        result.widen(part);
      } else {
        result.template combine_next<kOp>(part);
      }
    }
    Stored out[1];
    result.template store_to<kOp>(out, ranks());
    recv[e] = out[0];
  }

  const CudaAllReduce& call_;
  const TileShape& shape_;
  const std::uint32_t epoch_;
  Steps& steps_;
  unsigned char* stages_;
  Scratch* own_;
  const std::uint32_t tiles_;  // of this block
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(kThreads, 1)
    tiled_push(const __grid_constant__ CudaAllReduce call,
               const __grid_constant__ TileShape shape) {
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ Steps steps;
  if (threadIdx.x == 0) {
    for (std::uint32_t stage = 0; stage < kPushOwnStages; ++stage) {
      steps.loaded[stage].init(1);
      steps.unused[stage].init(1 + kReducers);
    }
    for (std::uint32_t stage = 0; stage < kPushPeerStages; ++stage) {
      steps.fetched[stage].init(1);
      steps.combined[stage].init(kReducers);
    }
    steps.gave_up = 0;
    order_copies_behind_accesses();
  }
  const std::uint32_t epoch = begin_epoch(call);  // all threads meet there
  if (epoch == 0) return end_epoch(call, true);
  PushLane<Format, kOp, kRanks> lane(call, shape, epoch, steps, stages);
  const std::uint32_t warp = threadIdx.x / kWarpThreads;
  const bool first_lane = threadIdx.x % kWarpThreads == 0;
  if (warp == kLoader) lane.load();
  if (warp == kFetcher && first_lane) lane.fetch();
  if (warp == kPusher && first_lane) lane.push();
  if (warp >= kFirstReducer) lane.combine(threadIdx.x - kFirstReducer * kWarpThreads);
  __syncwarp();
  end_epoch(call, steps.gave_up != 0);
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &tiled_push<Format, kOp, 2>;
  }
  return &tiled_push<Format, kOp, 0>;
}

}  // namespace

cudaError_t launch_tiled_push(const CudaAllReduce& call, std::uint32_t blocks,
                              cudaStream_t stream) {
  blocks = std::min(blocks == 0 ? kMaxPushBlocks : blocks, kMaxPushBlocks);
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  const std::uint32_t tile_bytes = push_tile_bytes(bytes, call.ranks, blocks);
  const std::uint64_t tiles = tile_count(bytes, tile_bytes);
  const TileShape shape{.bytes = tile_bytes,
                        .tiles = static_cast<std::uint32_t>(tiles),
                        .send_vectors = lies_on(call.send[call.rank], kVectorBytes),
                        .recv_vectors = lies_on(call.recv[call.rank], kVectorBytes)};
  blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(tiles, blocks));
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call,
                  {blocks, kThreads, push_shared_bytes(tile_bytes, call.ranks)}, stream, shape);
  });
}

// A block that wants more than 48 KB of shared memory has to say so in each context once.
cudaError_t load_tiled_push(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    cudaError_t loaded = load_for_all_ranks(kernel_for<Format, kOp>);
    for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks && loaded == cudaSuccess; ++ranks) {
      loaded = cudaFuncSetAttribute(kernel_for<Format, kOp>(ranks),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kMaxPushSharedBytes));
    }
    return loaded;
  });
}

}  // namespace arcomm::device
