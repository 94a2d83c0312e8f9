#include "kernels/direct.h"

extern "C" {
// Aligned as the driver reads it; the definition, made by the build of all_reduce.cu, says nothing.
extern const unsigned char kArcommDirectFatbin[] __attribute__((aligned(16)));
}
#include <arcomm_direct_fatbin.inc>

namespace arcomm {

std::span<const std::byte> direct_kernel_image() {
  return std::as_bytes(std::span(kArcommDirectFatbin));
}

}  // namespace arcomm
