// What daemons may cost each other, and strangers on their port. Constants.
#pragma once

#include <chrono>
#include <cstddef>

namespace arcomm {

inline constexpr int kMostPeerMessageBytes = 1 << 20;  // Form of some thousand ranks
inline constexpr std::size_t kMostStrangers = 64;      // connections that have proven nothing
inline constexpr std::size_t kMostPeerConnections = 1280;
inline constexpr std::chrono::milliseconds kProofLimit{5000};  // from the connect
inline constexpr std::chrono::milliseconds kStrangersFairTime{
    500};  // before others may push one out

}  // namespace arcomm
