// Random inputs whose reduction every library must give to the bit, in whatever order it adds:
// small integers, exact in every type; and, with a codec, within what it promises. They repeat
// after a period that no tile of a kernel is a multiple of, and may begin at any of its elements,
// which makes many inputs of one. Host memory; immutable, any thread.
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
  // With a codec an element may be off by its published error (proto/coding.h), of blocks that hold
  // the largest inputs there are.
  std::uint64_t wrong(const std::byte* got, std::uint64_t shift, std::uint64_t first,
                      std::uint64_t count, std::string* what, Codec codec = Codec::None) const;

 private:
  explicit GpuInputs(DType dtype) : dtype_(dtype), element_(size_of(dtype)) {}
  double allowed(Codec codec) const;

  DType dtype_;
  std::uint64_t element_;
  int ranks_ = 1;
  double largest_ = 0;  // a result of every rank's largest input
  std::vector<std::byte> mine_, expected_;
};

}  // namespace arcomm::arctl
