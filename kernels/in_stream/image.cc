#include "kernels/in_stream/kernels.h"

extern "C" {
// The driver reads it aligned so. The definition comes from the build of all_reduce.cu, without
// that.
extern const unsigned char kArcommInStreamFatbin[] __attribute__((aligned(16)));
}
#include <arcomm_in_stream_fatbin.inc>

namespace arcomm {

std::span<const std::byte> in_stream_kernel_image() {
  return std::as_bytes(std::span(kArcommInStreamFatbin));
}

}  // namespace arcomm
