// Packets of lines of 128 bytes, and which of an operation's are a block's own: packet p of an
// operation, or of a shard, is block p % gridDim.x's on every rank, and the block's own packet
// p / gridDim.x.
#pragma once

#include "kernels/device/element.cuh"
#include "kernels/device/ll128.cuh"
#include "kernels/in_stream/block_epoch.cuh"

namespace arcomm::device {

static_assert(kInStreamPacketBytes == kLl128PacketBytes &&
              kInStreamPacketData == kLl128PacketData && kInStreamThreads == kLl128Threads);

constexpr std::uint32_t kInStreamWarps = kInStreamThreads / kLl128Lanes;

__device__ __forceinline__ bool can_move_vectors(const InStreamCall& call) {
  return (reinterpret_cast<std::uintptr_t>(call.send) |
          reinterpret_cast<std::uintptr_t>(call.recv)) %
             sizeof(uint4) ==
         0;
}

// The packets of an operation that is one hop, as a warp deals with them: it has every
// kInStreamWarps-th one of its block.
template <typename Format>
class OwnPackets {
 public:
  __device__ __forceinline__ explicit OwnPackets(const InStreamCall& call)
      : call_(call),
        elements_({0, call.count}, can_move_vectors(call)),
        packets_(static_cast<std::uint32_t>(
            ll128_packets(std::uint64_t{call.count} * sizeof(typename Format::Stored)))) {}

  __device__ __forceinline__ bool exists(std::uint32_t i) const {
    return threadIdx.x < kInStreamThreads && packet(i) < packets_;
  }
  // No warp of the block has a second one.
  __device__ __forceinline__ bool are_one_each() const {
    return blockIdx.x + kInStreamWarps * gridDim.x >= packets_;
  }
  __device__ __forceinline__ LaneData read(std::uint32_t i) const {
    return elements_.read(call_.send, packet(i));
  }
  __device__ __forceinline__ void write(std::uint32_t i, const LaneData& out) const {
    elements_.write(call_.recv, packet(i), out);
  }
  // Where rank `from` leaves the packet for rank `at`, in that slot of the warp's.
  __device__ __forceinline__ uint4* place(const BlockEpoch& epoch, std::uint32_t at,
                                          std::uint32_t from, std::uint32_t slot) const {
    return epoch.packets(at, from) + of_block(slot) * (kLl128PacketBytes / sizeof(uint4));
  }

 private:
  static __device__ __forceinline__ std::uint32_t of_block(std::uint32_t i) {
    return threadIdx.x / kLl128Lanes + i * kInStreamWarps;
  }
  static __device__ __forceinline__ std::uint32_t packet(std::uint32_t i) {
    return blockIdx.x + of_block(i) * gridDim.x;
  }

  const InStreamCall& call_;
  PacketElements<Format> elements_;
  std::uint32_t packets_;
};

}  // namespace arcomm::device
