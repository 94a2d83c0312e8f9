// AllReduces that a client's own stream runs: kernels that need no daemon between call and links,
// through memory that the ranks share (proto/direct_exchange.h). The results are launch.h's, bit
// for bit. The image is one for all GPUs from sm_80 on; the daemon hands it to its clients, which
// find in it what direct_kernel_name() says. Built with CUDA only.
#pragma once

#include <cstddef>
#include <span>

namespace arcomm {

std::span<const std::byte> direct_kernel_image();

}  // namespace arcomm
