// The codecs: what travels in the place of an element's own bits. A row is all that there is to say
// of one. Its names, its format, what is published of it (coding.h) and its kernels in-stream
// (kernels/CMakeLists.txt reads the rows) follow from that. kernels/codec/README.md has the
// formats. Plain values; need no CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace arcomm {

// X(name, number, text, bits, levels, rotated, snr_db)
//   number   crosses the ring and the C ABI: appended to, never renumbered
//   text     what people type; in-stream kernels are called by it, too
//   bits     of a code
//   levels   L: codes are -L .. L-1, all that the bits can be; 0: codes are e4m3fn
//   rotated  the block's Walsh-Hadamard transform is what is quantized
//   snr_db   as coding.h publishes it
// clang-format off
#define ARC_CODECS(X)                                   \
  X(None,      0, "none",       0,   0, false,  0.0)    \
  X(Fp8,       1, "fp8",        8,   0, false, 32.4)    \
  X(Q8,        2, "q8",         8, 128, false, 45.3)    \
  X(Q6,        3, "q6",         6,  32, false, 33.3)    \
  X(Q4,        4, "q4",         4,   8, false, 21.2)    \
  X(Q8Rotated, 5, "q8_rotated", 8, 128, true,  45.3)    \
  X(Q6Rotated, 6, "q6_rotated", 6,  32, true,  33.3)    \
  X(Q4Rotated, 7, "q4_rotated", 4,   8, true,  21.2)
// clang-format on

enum class Codec : std::uint8_t {
#define X(name, number, ...) name = number,
  ARC_CODECS(X)
#undef X
};

#define X(...) +1
inline constexpr unsigned kCodecs = ARC_CODECS(X);
#undef X
static_assert(kCodecs == 8, "kUnknownCodec names the last one");
inline constexpr const char* kUnknownCodec =
    "the codec is unknown: this version knows 0 (none) to 7 (q4_rotated)";

// All but None.
inline constexpr std::array kRealCodecs = [] {
  std::array<Codec, kCodecs - 1> codecs{};
  for (std::size_t i = 0; i < codecs.size(); ++i) codecs[i] = static_cast<Codec>(i + 1);
  return codecs;
}();

constexpr std::string_view text_of(Codec codec) {
  switch (codec) {
#define X(name, number, text, ...) \
  case Codec::name:                \
    return text;
    ARC_CODECS(X)
#undef X
  }
  return "unknown codec";
}

inline constexpr std::uint32_t kCodecBlock = 32;  // elements that share a scale
inline constexpr std::uint32_t kCodecScaleBytes = 2;

struct CodecFormat {
  std::uint32_t bits = 0;
  std::uint32_t levels = 0;
  bool rotated = false;

  constexpr bool is_fp8() const { return bits != 0 && levels == 0; }
  constexpr std::uint32_t code_bytes() const { return kCodecBlock * bits / 8; }
  constexpr std::uint32_t block_bytes() const { return code_bytes() + kCodecScaleBytes; }
  // bfloat16 bits of the largest scale with which every code decodes to a finite number: the
  // largest bfloat16 over L, a power of two; or what is just below the largest float over 448.
  constexpr std::uint16_t most_scale() const {
    return static_cast<std::uint16_t>(is_fp8() ? 0x7b12 : 0x7f7f - (bits - 1) * 0x80);
  }
};

// Of None: all zeros.
constexpr CodecFormat format_of(Codec codec) {
  switch (codec) {
#define X(name, number, text, bits, levels, rotated, snr_db) \
  case Codec::name:                                          \
    return {bits, levels, rotated};
    ARC_CODECS(X)
#undef X
  }
  return {};
}

// How an operation came by its codec, which may be none: it was named, or not spoken of; or it is
// what the launch table has for an error class (coding.h).
enum class CodecOrigin : std::uint8_t { Named, ErrorClass };
constexpr std::string_view text_of(CodecOrigin origin) {
  return origin == CodecOrigin::ErrorClass ? "an error class" : "its name";
}

}  // namespace arcomm
