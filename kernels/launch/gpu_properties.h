// What a caller asks about a GPU before it launches kernels there. Any thread; built with CUDA
// only.
#pragma once

#include <cstdint>

namespace arcomm {

// Streaming multiprocessors that this process has of the GPU of that ordinal, which may be fewer
// than there are under MPS; makes it current. 0: CUDA does not say.
std::uint32_t sms_of(int ordinal);

}  // namespace arcomm
