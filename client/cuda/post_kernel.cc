#include "client/cuda/post_kernel.h"

extern "C" {
// Aligned as the driver reads it; the definition, made by the build of post.cu, says nothing.
extern const unsigned char kArcommPostFatbin[] __attribute__((aligned(16)));
}
#include <arcomm_post_fatbin.inc>

namespace arcomm::client {

const void* post_kernel_image() {
  return kArcommPostFatbin;
}

}  // namespace arcomm::client
