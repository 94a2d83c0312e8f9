// Which codec an AllReduce gets: one by its name, or the fastest one that honours an error class.
// And what each codec promises, from which that follows: the numbers behind arclient.h's words.
// Pure values; any thread. Decibels are 10 log10 of powers; errors are relative to the largest
// magnitude of a block of kCodecBlock elements.
#pragma once

#include <cstdint>
#include <string>

#include "proto/types.h"

namespace arcomm {

// How far off a codec may be, on top of what an AllReduce without one rounds. Where both are given
// both count. 0: not asked for.
struct ErrorClass {
  double least_snr_db = 0;         // signal over noise of the result, of Gaussian data
  double most_relative_error = 0;  // of an element over the sum of its ranks' blocks' largest

  constexpr bool any() const { return least_snr_db != 0 || most_relative_error != 0; }
  friend bool operator==(const ErrorClass&, const ErrorClass&) = default;
};

// A codec, or an error class; or neither: elements travel as they are.
struct Coding {
  Codec codec = Codec::None;
  ErrorClass error_class = {};

  constexpr bool any() const { return codec != Codec::None || error_class.any(); }
  friend bool operator==(const Coding&, const Coding&) = default;
};

// Null where it makes sense, else why not: a static sentence. Of a value that a stranger wrote.
const char* find_fault(const Coding& coding);
// "none", "q8", "at least 30 dB", "at most 0.01 of a block's largest", or both with "and".
std::string to_string(const Coding& coding);

// What is published of a codec. `snr_db` is what Gaussian data of 2^19 elements were measured to
// keep (tests/unit/kernels/codec_accuracy_test.cc), and what the formula says, cut to tenths:
//   q8, q6, q4 of L levels   12 L^2 / E[a^2]: steps of a / L, rounded, are off by step^2 / 12, and
//                            a^2, the largest of 32 squared Gaussians, is 5.71 on average
//   fp8                      12 * 8^2 * 7/3: in each binade 8 steps, and x^2 is 7/3 of its lower
//                            end's on average
//   rotated                  as unrotated: the transform of Gaussian data is Gaussian
// `relative_error` is the most of golden.h's error_bounds() over the block's largest magnitude a:
//   q8, q6, q4               1 / L + 2^-8: of a value beyond the greatest code, for which there is
//                            one code less; any other is off by half of that
//   fp8                      1/16 (1 + 2^-8): half a step of 2^-3 of x, and |x| is a at most
//   rotated                  16 / L (1 + 2^-8) + 2^-16: the transform's largest is 32 a at most, of
//                            a block of equal magnitudes, and half a step of it is what all others
//                            may be off by
// A block whose a is below 2^-100 counts as zeros, whatever the codec.
// Whoever changes these raises kLaunchTableVersion (proto/gpu/launch_table.h).
struct CodecBound {
  std::uint32_t half_bits;  // that an element takes on the wire, its share of the scale included
  double snr_db;
  double relative_error;
};
inline constexpr double kBoundScale = 0x1p-8;  // what a scale may be off by, as a bfloat16
constexpr double published_snr_db(Codec codec) {
  switch (codec) {
#define X(name, number, text, bits, levels, rotated, snr_db) \
  case Codec::name:                                          \
    return snr_db;
    ARC_CODECS(X)
#undef X
  }
  return 0;
}
constexpr double published_relative_error(const CodecFormat& format) {
  if (format.is_fp8()) return (1 + kBoundScale) / 16;
  const double levels = format.levels;
  return format.rotated ? 16.0 / levels * (1 + kBoundScale) + 0x1p-16 : 1.0 / levels + kBoundScale;
}
// Of a real codec.
constexpr CodecBound bound_of(Codec codec) {
  const CodecFormat format = format_of(codec);
  return {.half_bits = 2 * 8 * format.block_bytes() / kCodecBlock,
          .snr_db = published_snr_db(codec),
          .relative_error = published_relative_error(format)};
}

// The bounds where every element is quantized `times` times, once or twice, on its way. Each time
// adds as much noise as the first: 3.01 dB. A second time quantizes sums, whose largest is at most
// (1 + e) times what their addends' are together: e + e (1 + e).
double snr_db_of(Codec codec, unsigned times);
double relative_error_of(Codec codec, unsigned times);
// By those; none honours everything.
bool honours(Codec codec, const ErrorClass& wanted, unsigned times);

}  // namespace arcomm
