// What a client and a daemon compare before they talk. A major number never mixes; a minor one
// grows by appended fields that the older side ignores.
#pragma once

#include <cstdint>

namespace arcomm {

inline constexpr int kVersionMajor = 0;
inline constexpr int kVersionMinor = 1;
inline constexpr int kVersionPatch = 0;
inline constexpr int kVersionNumber = kVersionMajor * 10000 + kVersionMinor * 100 + kVersionPatch;

inline constexpr std::uint16_t kRingAbiMajor = 4;
inline constexpr std::uint16_t kRingAbiMinor = 0;

}  // namespace arcomm
