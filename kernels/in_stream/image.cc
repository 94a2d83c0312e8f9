#include "kernels/in_stream.h"

extern "C" {
// Aligned as the driver reads it; the definition, made by the build of all_reduce.cu, says nothing.
extern const unsigned char kArcommInStreamFatbin[] __attribute__((aligned(16)));
}
#include <arcomm_in_stream_fatbin.inc>

namespace arcomm {

std::span<const std::byte> in_stream_kernel_image() {
  return std::as_bytes(std::span(kArcommInStreamFatbin));
}

}  // namespace arcomm
