// Numbers of nodes that the tests of what goes on between nodes go through: all small ones, which
// are odd, prime and powers of two, and some large ones. Constant data.
#pragma once

#include <cstdint>

namespace arcomm {

inline constexpr std::uint32_t kNodes[] = {2,  3,  4,  5,  6,  7,  8,  9,  10,  11,
                                           12, 13, 14, 15, 16, 17, 32, 64, 1024};

}  // namespace arcomm
