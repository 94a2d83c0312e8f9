// LL128: how a warp stores its packet of eight lines of 128 bytes, looks at one and waits for one.
// All 32 lanes of a warp call these together. ll128_layout.h says how data lies in a packet.
//
// Here packets move; codec/ says what they carry. This needs more than PTX promises: 128 bytes that
// a warp stores with one instruction must reach another GPU's memory at once, and must be read so.
// ll128_self_test.h says whether they do.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"
#include "kernels/lines/ll128_layout.h"

namespace arcomm::device {

constexpr std::uint32_t kWarp = 0xffff'ffffU;
constexpr std::uint32_t kLl128Threads = 512;  // of a block, that move packets
constexpr std::uint32_t kLl128Warps = kLl128Threads / kLl128Lanes;

// What one lane has of a packet; nothing where ll128_has_data() is false.
struct LaneData {
  uint4 first, second;
};

__device__ __forceinline__ std::uint32_t lane_of_thread() {
  return threadIdx.x % kLl128Lanes;
}

// How the packets of an operation, or of a shard, are dealt out: packet p goes to block p %
// gridDim.x of every rank, as that block's own packet p / gridDim.x. A block that found no room yet
// keeps only its like waiting. From the block's own number to that of all:
__device__ __forceinline__ std::uint32_t packet_of_all(std::uint32_t of_block) {
  return blockIdx.x + of_block * gridDim.x;
}
// Where a block's packets go to its warps in turn: the block's own number of this warp's packet i.
__device__ __forceinline__ std::uint32_t packet_of_block(std::uint32_t i) {
  return threadIdx.x / kLl128Lanes + i * kLl128Warps;
}

// From the lane's vector of data to its part of four lines, and back.
__device__ __forceinline__ uint4 into_lines(uint4 vector, std::uint32_t flag) {
  const std::uint32_t lane = lane_of_thread();
  const std::uint32_t of_7 = __shfl_sync(kWarp, vector.w, 7);
  const std::uint32_t of_15 = __shfl_sync(kWarp, vector.w, 15);
  const std::uint32_t of_23 = __shfl_sync(kWarp, vector.w, 23);
  if (!ll128_has_data(lane)) return {of_7, of_15, of_23, flag};
  if (ll128_has_flag(lane)) vector.w = flag;
  return vector;
}
__device__ __forceinline__ uint4 from_lines(uint4 vector) {
  const std::uint32_t lane = lane_of_thread(), last = kLl128Lanes - 1;
  const std::uint32_t of_7 = __shfl_sync(kWarp, vector.x, last);
  const std::uint32_t of_15 = __shfl_sync(kWarp, vector.y, last);
  const std::uint32_t of_23 = __shfl_sync(kWarp, vector.z, last);
  if (lane == 7) vector.w = of_7;
  if (lane == 15) vector.w = of_15;
  if (lane == 23) vector.w = of_23;
  return vector;
}

// This is a function of its own, because a barrier alone does not keep the stores behind it one
// instruction each. Inlined, the compiler may copy them, with one copy for the lanes that have less
// to read; lanes with flags are among those, and their flags would then arrive before the data.
// A kernel that read element by element made wrong sums on H200 that way. tests/disassembly looks
// at the machine code of every packet: the barrier before it, and no way in between.
inline __device__ __noinline__ void store_packet(uint4* packet, LaneData data, std::uint32_t flag) {
  const std::uint32_t lane = lane_of_thread();
  const uint4 first = into_lines(data.first, flag), second = into_lines(data.second, flag);
  __syncwarp(kWarp);  // each line with one instruction
  store_line(packet + lane, first);
  store_line(packet + kLl128Lanes + lane, second);
}

// A packet as it was when this warp looked: the lane's part of its lines.
struct Ll128Packet {
  uint4 first, second;

  __device__ __forceinline__ void load(const uint4* packet) {
    const std::uint32_t lane = lane_of_thread();
    __syncwarp(kWarp);
    first = load_line(packet + lane);
    second = load_line(packet + kLl128Lanes + lane);
  }
  // What this lane sees of it: the packet is there when all lanes say so.
  __device__ __forceinline__ bool is_of(std::uint32_t flag) const {
    return !ll128_has_flag(lane_of_thread()) || (first.w == flag && second.w == flag);
  }
  // Called by all lanes; the last one gets nothing of use.
  __device__ __forceinline__ LaneData data() const {
    return {from_lines(first), from_lines(second)};
  }
};

// Waits for a packet that `from` leaves. False: the wait failed. The same answer in all lanes.
template <typename Watch>
__device__ __forceinline__ bool receive_packet(Ll128Packet& packet, const uint4* place,
                                               std::uint32_t from, std::uint32_t flag,
                                               WaitBudget<Watch>& budget) {
  for (;;) {
    packet.load(place);
    if (__all_sync(kWarp, packet.is_of(flag))) return true;
    if (!budget.is_due()) continue;
    const bool gives_up = lane_of_thread() == 0 && !budget.looks_around(from);
    if (__any_sync(kWarp, gives_up)) return false;
  }
}

}  // namespace arcomm::device
