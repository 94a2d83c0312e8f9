// Encoded partials between shared memory and where peers put them or read them, a warp with a group
// of blocks at a time (codec/packed_group.cuh). For exchange_coded.cu.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/network/network_block.cuh"

namespace arcomm::device {

constexpr std::uint32_t kNetworkWarps = kNetworkThreads / kLl128Lanes;
// Groups that are on their way to a warp together: over PCIe one takes more than a microsecond, in
// which a warp decodes about as many.
constexpr std::uint32_t kGroupsAhead = 4;

__device__ __forceinline__ std::uint32_t warp_of_thread() {
  return threadIdx.x / kLl128Lanes;
}
// This warp's rooms for a group, kGroupsAhead of them. Blocks either stage or combine.
template <typename Group>
__device__ __forceinline__ unsigned char* room_of_warp(std::uint32_t number) {
  __shared__ uint4 rooms[kNetworkWarps][kGroupsAhead][Group::kBytes / sizeof(uint4)];
  return reinterpret_cast<unsigned char*>(rooms[warp_of_thread()][number]);
}

// A group's bytes from its room to where they are staged, which may lie off 16 bytes.
__device__ __forceinline__ void store_group(unsigned char* to, const unsigned char* room,
                                            std::uint32_t bytes) {
  const std::uint32_t vectors = is_on_16(to) ? bytes / 16 : 0;
  for (std::uint32_t i = lane_of_thread(); i < vectors; i += kLl128Lanes)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(room)[i];
  for (std::uint32_t i = vectors * 16 + lane_of_thread(); i < bytes; i += kLl128Lanes)
    to[i] = room[i];
}

// The groups of this warp, and of each those of all nodes but this one, in their order: of one
// chunk, of which every node sent so many bytes. All lanes call these together.
template <typename Group>
class ComingGroups {
 public:
  // parts: where each node's chunk lies.
  __device__ __forceinline__ ComingGroups(const NetworkCall& call,
                                          const unsigned char* const* parts, std::uint32_t bytes)
      : parts_(parts), node_(call.node), nodes_(call.nodes), bytes_(bytes), peer_(first_peer()) {
    for (std::uint32_t number = 0; number < kGroupsAhead; ++number) ask(number);
  }
  // Whose turn it is.
  __device__ __forceinline__ const unsigned char* next() {
    wait_for_copies<kGroupsAhead - 1>();
    __syncwarp(kWarp);
    return room_of_warp<Group>(number_);
  }
  // No lane needs it any more.
  __device__ __forceinline__ void taken() {
    __syncwarp(kWarp);
    ask(number_);
    number_ = (number_ + 1) % kGroupsAhead;
  }

 private:
  __device__ __forceinline__ std::uint32_t first_peer() const { return node_ == 0 ? 1 : 0; }

  // Past L1: what the proxy brought is new in the same slot each time. A group of no copies where
  // there are no more to come, so that they are counted all the same.
  __device__ __forceinline__ void ask(std::uint32_t number) {
    if (first_ < bytes_) {
      const unsigned char* const from = parts_[peer_] + first_;
      unsigned char* const room = room_of_warp<Group>(number);
      const std::uint32_t bytes = min(bytes_ - first_, Group::kBytes);
      const std::uint32_t vectors = is_on_16(from) ? bytes / 16 : 0;
      for (std::uint32_t i = lane_of_thread(); i < vectors; i += kLl128Lanes)
        copy_async(reinterpret_cast<uint4*>(room) + i, reinterpret_cast<const uint4*>(from) + i);
      for (std::uint32_t i = vectors * 16 + lane_of_thread(); i < bytes; i += kLl128Lanes)
        room[i] = load_past_l1(from + i);
      go_on();
    }
    commit_copies();
  }
  __device__ __forceinline__ void go_on() {
    peer_ += peer_ + 1 == node_ ? 2 : 1;
    if (peer_ < nodes_) return;
    peer_ = first_peer();
    first_ += kNetworkWarps * Group::kBytes;
  }

  const unsigned char* const* parts_;
  const std::uint32_t node_, nodes_, bytes_;
  std::uint32_t peer_, first_ = warp_of_thread() * Group::kBytes;  // to be asked for next
  std::uint32_t number_ = 0;                                       // the room of the next
};

}  // namespace arcomm::device
