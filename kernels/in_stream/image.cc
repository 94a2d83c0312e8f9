#include "kernels/in_stream/kernels.h"

extern "C" {
// The driver reads them aligned so. The definitions come from the build of the kernels, without
// that.
#define X(name, ...) \
  extern const unsigned char kArcommInStream##name[] __attribute__((aligned(16)));
ARC_CODECS(X)
#undef X
}
#include <arcomm_in_stream_images.inc>

namespace arcomm {

InStreamImages in_stream_kernel_images() {
  InStreamImages images;
#define X(name, ...) \
  images[static_cast<std::size_t>(Codec::name)] = std::as_bytes(std::span(kArcommInStream##name));
  ARC_CODECS(X)
#undef X
  return images;
}

}  // namespace arcomm
