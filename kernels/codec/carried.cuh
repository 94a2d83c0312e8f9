// What finds no place among its own lane's words of a packet travels in the words of the lanes
// behind those that have blocks: it changes lanes through shared memory.
#pragma once

#include <cstdint>

#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

inline constexpr std::uint32_t kLaneWords = sizeof(LaneData) / 4;

// A lane's words by number. Numbers are known when it is compiled, as registers have none.
union LaneWords {
  LaneData data;
  std::uint32_t words[kLaneWords];
};

// kBytes of all lanes together, in the lanes from kFirst on.
template <std::uint32_t kFirst, std::uint32_t kBytes>
class Carried {
 public:
  static constexpr std::uint32_t kLanes = (kBytes + sizeof(LaneData) - 1) / sizeof(LaneData);
  static_assert(kFirst + kLanes < kLl128Lanes);  // the last lane carries nothing

  // Between the two: what the lanes want carried is put to its place in bytes().
  static __device__ __forceinline__ void begin() {
    __syncwarp(kWarp);
    // Behind it nothing travels, and nothing of whose the memory was before.
    if (lane_of_thread() - kFirst < kWordsBehind)
      bytes<std::uint32_t>(kBytes)[lane_of_thread() - kFirst] = 0;
  }
  static __device__ __forceinline__ void put_into(LaneWords& packet) {
    __syncwarp(kWarp);
    if (carries()) packet.data = place();
  }
  // Afterwards the lanes take from bytes() what was carried for them.
  static __device__ __forceinline__ void take_from(const LaneWords& packet) {
    __syncwarp(kWarp);
    if (carries()) place() = packet.data;
    __syncwarp(kWarp);
  }
  // Of this warp. What lanes have that want nothing carried is inside, too.
  template <typename T>
  static __device__ __forceinline__ T* bytes(std::uint32_t offset) {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(lanes()) + offset);
  }

 private:
  static constexpr std::uint32_t kWordsBehind = (kLanes * sizeof(LaneData) - kBytes) / 4;
  static_assert(kBytes % 4 == 0 && kWordsBehind <= kLl128Lanes - kFirst);
  static constexpr std::uint32_t kRoom = kLl128Lanes - kFirst;
  static constexpr std::uint32_t kMostWarps = kLl128Warps + 1;

  static __device__ __forceinline__ LaneData* lanes() {
    __shared__ LaneData lanes[kMostWarps][kRoom];
    return lanes[threadIdx.x / kLl128Lanes];
  }
  static __device__ __forceinline__ bool carries() { return lane_of_thread() - kFirst < kLanes; }
  static __device__ __forceinline__ LaneData& place() { return lanes()[lane_of_thread() - kFirst]; }
};

}  // namespace arcomm::device
