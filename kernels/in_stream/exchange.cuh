// How in-stream kernels run the algorithms that are written for either exchange: through the memory
// of proto/gpu/exchange.h, in the epochs of block_epoch.cuh. A thread has one line, a warp one
// packet at most; the algorithms of this folder alone have more.
#pragma once

#include <cstdint>

#include "kernels/codec/concept.cuh"
#include "kernels/in_stream/block_epoch.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

static_assert(kInStreamPacketBytes == kLl128PacketBytes &&
              kInStreamPacketData == kLl128PacketData && kInStreamThreads == kLl128Threads);
// A warp has at most one packet of its rank's shard.
static_assert(kInStreamPartPackets <= kLl128Warps);

__device__ __forceinline__ bool can_move_vectors(const InStreamCall& call) {
  return (reinterpret_cast<std::uintptr_t>(call.send) |
          reinterpret_cast<std::uintptr_t>(call.recv)) %
             sizeof(uint4) ==
         0;
}

class InStreamExchange {
 public:
  static constexpr bool kOneEach = true;

  __device__ __forceinline__ InStreamExchange(const InStreamCall& call, BlockState& state)
      : call_(call), state_(state), epoch_(call, state) {}

  __device__ __forceinline__ std::uint32_t rank() const { return call_.rank; }
  __device__ __forceinline__ std::uint32_t ranks() const { return call_.ranks; }
  __device__ __forceinline__ std::uint64_t count() const { return call_.count; }
  __device__ __forceinline__ const void* send() const { return call_.send; }
  __device__ __forceinline__ void* recv() const { return call_.recv; }

  // All threads move data but those of the watcher.
  __device__ __forceinline__ bool moves() const { return !epoch_.is_watcher(); }
  __device__ __forceinline__ std::uint32_t thread() const {
    return blockIdx.x * kInStreamThreads + threadIdx.x;
  }

  __device__ __forceinline__ void enter() { epoch_.enter(); }
  __device__ __forceinline__ bool begins() {
    if (!epoch_.begins()) return false;
    if (epoch_.is_watcher()) epoch_.agree();
    return true;
  }
  __device__ __forceinline__ InStreamBudget budget() const {
    return InStreamBudget({call_, state_});
  }
  __device__ __forceinline__ std::uint32_t flag() const { return epoch_.flag(); }
  // Called by all threads, when what they would write first is ready. False: a thread gave up, or
  // the ranks do not agree.
  __device__ __forceinline__ bool may_write() { return epoch_.all_agree(); }
  // Called by any thread, when no thread of the block waits for anybody any more.
  __device__ __forceinline__ void waits_no_more() const { epoch_.trigger_dependents(); }
  __device__ __forceinline__ void leave(bool) { epoch_.leave(); }

  __device__ __forceinline__ uint4* line(std::uint32_t at, std::uint32_t from,
                                         std::uint32_t) const {
    return epoch_.ll16_lines(at, from) + threadIdx.x;
  }
  __device__ __forceinline__ uint4* input(std::uint32_t at, std::uint32_t from,
                                          std::uint32_t of_block) const {
    return epoch_.packets(at, from) + of_block * (kLl128PacketBytes / sizeof(uint4));
  }
  __device__ __forceinline__ uint4* part(std::uint32_t at, std::uint32_t from,
                                         std::uint32_t of_block) const {
    return input(at, from, of_block);
  }
  __device__ __forceinline__ uint4* result(std::uint32_t at, std::uint32_t from,
                                           std::uint32_t of_block) const {
    return input(at, from, kInStreamPartPackets + of_block);
  }

  // Of all packets: there are algorithms that write them several times in an epoch.
  __device__ __forceinline__ std::uint32_t packet_flag(std::uint32_t lap = 0) const {
    return epoch_.flag_of_lap(lap);
  }
  // Between two, where a warp's packets take turns in its slots: the slot of its packet i, and the
  // packet's flag, in which the lap counts.
  __device__ __forceinline__ uint4* slot(std::uint32_t at, std::uint32_t from,
                                         std::uint32_t i) const {
    return input(at, from, packet_of_block(i % kInStreamSlots));
  }
  __device__ __forceinline__ std::uint32_t flag_in_slot(std::uint32_t i) const {
    return packet_flag(i / kInStreamSlots);
  }

 private:
  const InStreamCall& call_;
  BlockState& state_;
  BlockEpoch epoch_;
};

// The shards of a two-hop operation: cut once, because a division takes long. They end at cache
// lines of elements that have kElementBytes.
template <PacketCodec Codec, std::size_t kElementBytes = sizeof(typename Codec::Stored)>
class InStreamShards {
 public:
  __device__ __forceinline__ explicit InStreamShards(const InStreamCall& call)
      : vectors(can_move_vectors(call)), cut_(call.count, kElementBytes, call.ranks) {}

  __device__ __forceinline__ ElementRange of(std::uint32_t owner) const { return cut_.of(owner); }
  __device__ __forceinline__ std::uint32_t packets() const {
    return packets_of<Codec>(of(0).size());
  }

  const bool vectors;

 private:
  ShardCut<std::uint32_t> cut_;
};

}  // namespace arcomm::device
