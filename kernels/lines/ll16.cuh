// LL16: lines of 16 bytes that bring their flag along: 8 bytes of data and two copies of the flag
// in one store. Each half of a line is written and read whole, so a reader that finds the flag in
// both has the data: one hop, no fence, twice the traffic of the data.
//
// Here lines move; codec/ says what the 8 bytes are. The owner of the memory gives out the flags,
// and never one that an old line there may still show.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"

namespace arcomm::device {

// The flag of operation `number`: never that of a line that was wiped to 0. The number that gets
// the same flag uses the other half of the memory.
__device__ __forceinline__ std::uint32_t flag_of(std::uint32_t number) {
  return number == 0 ? 0xffff'ffffU : number;
}

__device__ __forceinline__ void store_ll16(uint4* to, uint2 data, std::uint32_t flag) {
  store_line(to, {data.x, flag, data.y, flag});
}

// A line as it was when this thread looked.
struct Ll16Line {
  uint4 seen;

  __device__ __forceinline__ void load(const uint4* from) { seen = load_line(from); }
  __device__ __forceinline__ bool is_of(std::uint32_t flag) const {
    return seen.y == flag && seen.w == flag;
  }
  __device__ __forceinline__ uint2 data() const { return {seen.x, seen.z}; }
};

// Waits for a line that `from` leaves. False: the wait failed.
template <typename Watch>
__device__ __forceinline__ bool receive_ll16(Ll16Line& line, const uint4* place, std::uint32_t from,
                                             std::uint32_t flag, WaitBudget<Watch>& budget) {
  line.load(place);
  while (!line.is_of(flag)) {
    if (!budget.goes_on(from)) return false;
    line.load(place);
  }
  return true;
}

}  // namespace arcomm::device
