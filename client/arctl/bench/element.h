// One element of any type as a number, there and back: for inputs and results that are known to the
// bit. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace arcomm::arctl {

// Bits of a small integer in `dtype`, in the low bytes; exact from 0 to 256, in float16 to 2047, in
// wider types to 2^24 (8-bit integers: modulo 256).
std::uint64_t encode_small(DType dtype, int number);
double decode(DType dtype, const std::byte* element);
// Of float16, bfloat16 and float32: the nearest, ties to even.
void encode(DType dtype, float number, std::byte* element);

}  // namespace arcomm::arctl
