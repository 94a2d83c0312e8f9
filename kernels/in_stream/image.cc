#include "kernels/in_stream/kernels.h"

// X(codec, the array of its image)
#define ARC_IN_STREAM_IMAGES(X)                \
  X(None, kArcommInStreamFatbin)               \
  X(Fp8, kArcommInStreamFp8Fatbin)             \
  X(Q8, kArcommInStreamQ8Fatbin)               \
  X(Q6, kArcommInStreamQ6Fatbin)               \
  X(Q4, kArcommInStreamQ4Fatbin)               \
  X(Q8Rotated, kArcommInStreamQ8RotatedFatbin) \
  X(Q6Rotated, kArcommInStreamQ6RotatedFatbin) \
  X(Q4Rotated, kArcommInStreamQ4RotatedFatbin)

extern "C" {
// The driver reads them aligned so. The definitions come from the build of the kernels, without
// that.
#define X(codec, image) extern const unsigned char image[] __attribute__((aligned(16)));
ARC_IN_STREAM_IMAGES(X)
#undef X
}
#include <arcomm_in_stream_fatbin.inc>
#include <arcomm_in_stream_fp8_fatbin.inc>
#include <arcomm_in_stream_q4_fatbin.inc>
#include <arcomm_in_stream_q4_rotated_fatbin.inc>
#include <arcomm_in_stream_q6_fatbin.inc>
#include <arcomm_in_stream_q6_rotated_fatbin.inc>
#include <arcomm_in_stream_q8_fatbin.inc>
#include <arcomm_in_stream_q8_rotated_fatbin.inc>

namespace arcomm {

InStreamImages in_stream_kernel_images() {
  InStreamImages images;
#define X(codec, image) \
  images[static_cast<std::size_t>(Codec::codec)] = std::as_bytes(std::span(image));
  ARC_IN_STREAM_IMAGES(X)
#undef X
  return images;
}

}  // namespace arcomm
