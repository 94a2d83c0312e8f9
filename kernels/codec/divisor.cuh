// What a sum is divided by: 1 of a sum, the number of ranks of an average.
#pragma once

#include <cstdint>

#include "kernels/codec/blocks.cuh"
#include "proto/types.h"

namespace arcomm::device {

class Divisor {
 public:
  __device__ __forceinline__ explicit Divisor(std::uint32_t by)
      : by_(by), inverse_(1.0 / by), is_power_of_two_((by & (by - 1)) == 0) {}

  // As __fdiv_rn() does it, whose code is long. By a power of two it is a product. Else the
  // quotient, with its remainder put right once, is exact to a double; and that, rounded once more,
  // is the nearest float, as a double has more than twice a float's bits. What is zero stays as it
  // is: the rest of -0 would make +0 of it.
  __device__ __forceinline__ void divide(HalfBlock& half) const {
    if (by_ == 1) return;
    if (is_power_of_two_) {
#pragma unroll
      for (float& value : half.values) value = __fmul_rn(value, inverse());
      return;
    }
#pragma unroll
    for (float& value : half.values) {
      const double of = value, quotient = __dmul_rn(of, inverse_);
      const double rest = __fma_rn(-quotient, by_, of);
      if (value != 0 && fabsf(value) <= kLargestFinite)
        value = __double2float_rn(__fma_rn(rest, inverse_, quotient));
    }
  }

  __device__ __forceinline__ float inverse() const {
    return static_cast<float>(inverse_);
  }

 private:
  double by_, inverse_;
  bool is_power_of_two_;
};
template <ReduceOp kOp>
__device__ __forceinline__ Divisor divisor_of(std::uint32_t ranks) {
  return Divisor(kOp == ReduceOp::Avg ? ranks : 1);
}

}  // namespace arcomm::device
