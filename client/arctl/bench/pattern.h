// Inputs whose reduction is known without doing it: small integers that depend on the element's
// place and the rank, exact in every type, so that a result is compared bit by bit (averages of
// floating types within a rounding; with a codec, within the bound that arclient.h has for it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace arcomm::arctl {

class Pattern {
 public:
  Pattern(DType dtype, ReduceOp op, int ranks, Codec codec = Codec::None);

  void fill(std::byte* data, std::uint64_t count, Rank rank) const;
  // Elements of `data` that are not what the reduction gives.
  std::uint64_t wrong(const std::byte* data, std::uint64_t count) const;

 private:
  static constexpr unsigned kMaxClasses = 5;

  int input(unsigned place, Rank rank) const;
  double reduced(unsigned place) const;
  std::uint64_t wrong_coded(const std::byte* data, std::uint64_t count) const;
  double half_steps(std::uint64_t first, std::uint64_t last) const;  // of all ranks, in a block

  DType dtype_;
  ReduceOp op_;
  int ranks_;
  Codec codec_;
  unsigned classes_;  // how many different columns of inputs there are
};

// Elements that are not zero: what an in-place sum that started from zeros must have left.
std::uint64_t nonzero(const std::byte* data, std::uint64_t count, DType dtype);

}  // namespace arcomm::arctl
