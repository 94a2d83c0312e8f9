// A result held against the exact sum of what the ranks gave, element by element, and against the
// bound that is published of its codec. Pure; any thread. Sums are in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/types.h"

namespace arcomm::arctl {

// All that one rank has to tell of a result.
struct AccuracyFound {
  double signal = 0;         // sum of squares of the exact result
  double noise = 0;          // of what the result is off by
  double error_sum = 0;      // with its sign
  double most_of_bound = 0;  // the greatest error over what it may be
  // The greatest error, less what float32 and the type round, over the sum of its ranks' blocks'
  // largest magnitudes; but for blocks that count as zeros.
  double most_of_largest = 0;
  std::uint64_t elements = 0;
  std::uint64_t beyond = 0;  // their bound
  std::uint64_t digest = 0;  // of the result's bytes: equal on all ranks

  double snr_db() const;
  double bias() const;  // mean error over the exact result's root mean square
};

// inputs: by rank, as the dtype has them. result: as many elements.
AccuracyFound judge(std::span<const std::vector<float>> inputs, const std::byte* result,
                    DType dtype, ReduceOp op, Codec codec);

}  // namespace arcomm::arctl
