// Random inputs whose reduction every library must give to the bit, in whatever order it adds:
// small integers, exact in every type. They repeat after a period that no tile of a kernel is a
// multiple of, and may begin at any of its elements, which makes many inputs of one. Host memory;
// immutable, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/types.h"

namespace arcomm::arctl {

inline constexpr std::uint64_t kPeriod = 1048573;  // elements; prime

class GpuInputs {
 public:
  // Of the same `seed` on all ranks. Averages are exact between 1, 2, 4 or 8 ranks.
  GpuInputs(DType dtype, ReduceOp op, int ranks, Rank rank, std::uint64_t seed);
  // All zeros, on all ranks: sums and products in place stay what they are.
  static GpuInputs zeros(DType dtype);

  // One period of what this rank sends.
  const std::vector<std::byte>& mine() const { return mine_; }

  // Of `count` elements at `got`, which are those from element `first` of a result whose inputs
  // began at element `shift`: how many are not what they must be, and the first of them in words.
  std::uint64_t wrong(const std::byte* got, std::uint64_t shift, std::uint64_t first,
                      std::uint64_t count, std::string* what) const;

 private:
  explicit GpuInputs(DType dtype) : element_(size_of(dtype)) {}

  std::uint64_t element_;
  std::vector<std::byte> mine_, expected_;
};

}  // namespace arcomm::arctl
