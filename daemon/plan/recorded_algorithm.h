// How the flight recorder numbers what ran an operation: one byte for host and GPUs, and a name for
// `arctl trace`. The numbers hold within one version: what another one left may read otherwise.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/plan/network/network_choice.h"
#include "daemon/telemetry/flight_recorder.h"
#include "kernels/catalog.h"
#include "kernels/cuda_algorithms.h"

namespace arcomm {

inline constexpr std::uint8_t kFirstNetworkAlgorithm = 96;  // between nodes
inline constexpr std::uint8_t kFirstCudaAlgorithm = 128;
inline constexpr std::uint8_t kResidentKernel = kNoAlgorithm - 1;
inline constexpr std::uint8_t kInStreamKernel = kResidentKernel - 1;

constexpr std::uint8_t recorded(Algorithm algorithm) {
  return static_cast<std::uint8_t>(algorithm);
}
constexpr std::uint8_t recorded(CudaAlgorithm algorithm) {
  return static_cast<std::uint8_t>(kFirstCudaAlgorithm + static_cast<std::uint8_t>(algorithm));
}
constexpr std::uint8_t recorded(NetworkAlgorithm algorithm) {
  return static_cast<std::uint8_t>(kFirstNetworkAlgorithm + static_cast<std::uint8_t>(algorithm));
}

// "" where nothing ran.
std::string_view name_of_recorded(std::uint8_t algorithm);

}  // namespace arcomm
