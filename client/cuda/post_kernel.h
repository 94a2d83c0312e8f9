// The post kernel as the driver loads it: a fatbin that the build makes of post.cu. No state.
#pragma once

namespace arcomm::client {

const void* post_kernel_image();

}  // namespace arcomm::client
