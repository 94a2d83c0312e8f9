// One AllReduce by the book: what each rank sends, and what all of them must get, bit for bit, by
// kernels/host/reference.h. Host memory only; no GPU, no daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/types.h"

namespace arcomm::gpu {

struct Shape {
  std::uint64_t count = 0;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;

  std::uint64_t bytes() const { return count * size_of(dtype); }
};

using Bytes = std::vector<std::byte>;

// Floats of -4 to 4, integers of all sizes; the same for the same rank and seed.
Bytes sent_by(int rank, const Shape& shape, std::uint64_t seed);
// sent: by rank.
Bytes reduced(const Shape& shape, const std::vector<Bytes>& sent);

}  // namespace arcomm::gpu
