// One AllReduce between nodes, as far as its way between them depends on it: what all nodes know
// alike once they have agreed on its signature. A value.
#pragma once

#include <cstdint>

#include "proto/types.h"

namespace arcomm {

struct NetworkQuestion {
  std::uint64_t count = 0;  // elements of one rank
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::uint32_t nodes = 1;
  bool one_seat_each = true;  // every node has one rank
  Codec codec = Codec::None;  // what travels is encoded: it serves dtype and op

  constexpr std::uint64_t bytes() const { return count * size_of(dtype); }
};

// Whether the ranks may be combined in any order and the bits stay. Not so for min and max of
// floats: among -0 and +0 the one that came first stays.
constexpr bool any_order_gives_the_same(DType dtype) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
    case DType::Float64:
      return false;
    case DType::Int8:
    case DType::Uint8:
    case DType::Int32:
    case DType::Uint32:
    case DType::Int64:
    case DType::Uint64:
      return true;
  }
  return false;
}

}  // namespace arcomm
