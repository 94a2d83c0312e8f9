// The compressed wire formats as README.md beside this defines them: one element at a time, slow
// and obvious. The oracle of the codecs of every device, bit for bit, and the arithmetic behind the
// error that arclient.h publishes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codec/format.h"
#include "proto/types.h"

namespace arcomm::golden {

using Values = std::span<const float, kCodecBlock>;
using MutableValues = std::span<float, kCodecBlock>;

// Writes format_of(codec).block_bytes() bytes. Precondition: codec is not None, here and below.
void encode(Codec codec, Values values, std::byte* block);
// What the block holds, of a rotated codec the transform. Any bytes will do.
void decode(Codec codec, const std::byte* block, MutableValues values);
// The Walsh-Hadamard transform of a block, not normalised: twice gives 32 times the block.
void transform(MutableValues values);
// What becomes of a block that is encoded and decoded, of a rotated codec turned back, too.
void round_trip(Codec codec, Values values, MutableValues result);
// The greatest difference between each value and what round_trip() makes of it; infinite where the
// block decodes to NaN, or where turning it back may overflow.
void error_bounds(Codec codec, Values values, std::span<double, kCodecBlock> bounds);

// What a code of fp8 stands for.
float float_from_e4m3(std::uint8_t code);
// To nearest, ties to even; beyond 448 it is 448. Precondition: no NaN.
std::uint8_t e4m3_from_float(float value);

}  // namespace arcomm::golden
