// The launch table of a communicator: the one place where it is decided which operations between
// GPUs take which path, and how many blocks they get, and which codecs pay
// (proto/gpu/launch_table.h holds what comes of it). Pure: the same facts make the same table.
// Bounds were measured between two and four H200.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/tuning/in_call_tuning.h"
#include "kernels/cuda_algorithms.h"
#include "proto/gpu/exchange.h"
#include "proto/gpu/launch_table.h"

namespace arcomm {

// The kernel of what is launched, of so many bytes at most.
struct LaunchedStretch {
  std::uint64_t most_bytes = kAnyBytes;
  CudaAlgorithm algorithm = CudaAlgorithm::TwoShot;
  friend bool operator==(const LaunchedStretch&, const LaunchedStretch&) = default;
};

struct LaunchFacts {
  std::uint32_t ranks = 2;
  // The GPUs have passed the test of kernels/lines/ll128_self_test.h, all with each other.
  bool atomic_128b_stores = false;
  // SMs for what clients launch by themselves, on each of the GPUs; 0: nothing is in-stream.
  std::uint32_t in_stream_blocks = 0;
  bool codecs = true;                              // gpu.codecs: whoever asks for one gets it
  std::uint64_t most_in_stream_bytes = kAnyBytes;  // what is longer was measured to be faster else
  // From the smallest size on, the last for all that is left; empty: one that takes everything.
  std::vector<LaunchedStretch> launched = {};
};

LaunchTable make_launch_table(const LaunchFacts& facts);
// Of ranks on one host, whose calls meet (proto/host/in_call.h) within these bounds.
// No codec pays: between them nothing travels, so that coding is work and saves none.
LaunchTable make_launch_table_on_host(std::uint32_t ranks, const InCallBounds& in_call = {});

// What takes which sizes of a type without a codec, from the smallest on: for people.
struct LaunchStretch {
  LaunchPath path = LaunchPath::Launched;
  std::uint64_t most_bytes = kAnyBytes;
  std::optional<CudaAlgorithm> launched = std::nullopt;          // where that is the path
  std::optional<NetworkAlgorithm> between_nodes = std::nullopt;  // or that
  friend bool operator==(const LaunchStretch&, const LaunchStretch&) = default;
};
// The daemon's kernel of a launched row.
CudaAlgorithm launched_algorithm(std::uint8_t number);
std::vector<LaunchStretch> stretches_of(const LaunchTable& table, DType dtype);

}  // namespace arcomm
