// What one AllReduce is, as far as a kernel cares: where every rank's input and output lie, and
// what to do with them. A plain value: pointers that someone else keeps alive, no process, no lock.
// Offsets and counts are elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "proto/types.h"

namespace arcomm {

// Pointers are aligned to the element. recv[r] is send[r] (in place) or does not touch any other
// rank's range; ranges that overlap in another way give unspecified values (never an access outside
// of the ranges).
struct AllReduceArgs {
  const void* send[kMaxRanks] = {};
  void* recv[kMaxRanks] = {};
  std::uint64_t count = 0;
  std::uint32_t ranks = 0;  // 1 .. kMaxRanks
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
};
static_assert(std::is_trivially_copyable_v<AllReduceArgs>);

}  // namespace arcomm
