// The AllReduce algorithms on GPUs, by name, and what each takes: planner, tuner and
// `gpu.algorithm` choose from them. Plain values, which need no CUDA. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// Written to tuning files by name, never by number.
enum class CudaAlgorithm : std::uint8_t {
  OneShotLl16,   // pushes 8 bytes and their flag in one store; one hop; up to kMaxLl16Bytes
  TwoShot,       // each rank reduces its shard from everybody's input into everybody's output
  Stream,        // the same through rings of slots, so that only stores cross the links
  Flash,         // pulls everybody's input through shared memory, three copies ahead
  OneShotLl128,  // pushes lines of 124 bytes and their flag; one hop; small operations
  TwoShotLl128,  // the same to each shard's owner and from there to all; small and middle ones
  CopyEngine,    // copy engines carry everything, in chunks; the largest. See combine.h
  Alone          // one rank: its input is its output
};

struct CudaAlgorithmEntry {
  CudaAlgorithm algorithm;
  std::string_view name;  // as in tuning files
  std::uint32_t min_ranks, max_ranks;
  std::uint64_t max_bytes;  // per rank, between two; most_bytes_of() knows the rest. 0: any number
  bool needs_atomic_128b_stores =
      false;                 // only between GPUs that passed the test of lines/ll128_self_test.h
  bool needs_slots = false;  // the large part of a scratch: launch/cuda_scratch.h
  bool launches_all_ranks = false;  // copies and launches, in the order that its caller knows
  std::uint64_t sensible_from = 0;  // bytes, where the tuner begins to measure it
  // Wire formats that it is compiled for, by bit_of(): others only of algorithms on lines (codec/).
  std::uint8_t codecs = bit_of(Codec::None);
};
// What the GPUs of a communicator can do.
struct CudaAbilities {
  bool atomic_128b_stores = false;
};
// One entry per CudaAlgorithm, in the enum's order.
std::span<const CudaAlgorithmEntry> cuda_algorithms();
const CudaAlgorithmEntry& entry_of(CudaAlgorithm algorithm);
std::string_view name_of(CudaAlgorithm algorithm);
std::optional<CudaAlgorithm> cuda_algorithm_named(std::string_view name);
// Of one rank, between so many; 0: any number.
std::uint64_t most_bytes_of(CudaAlgorithm algorithm, std::uint32_t ranks);
// Whether the algorithm is compiled for that wire format; the error names both.
Status serves(CudaAlgorithm algorithm, Codec codec);
// Whether the algorithm takes an operation of that shape; the error says why not.
Status can_launch(CudaAlgorithm algorithm, std::uint64_t bytes, std::uint32_t ranks,
                  Codec codec = Codec::None);
bool can_run(CudaAlgorithm algorithm, CudaAbilities abilities);
// The algorithm itself where it needs no slots; otherwise what is run where there are none.
CudaAlgorithm without_slots(CudaAlgorithm algorithm, std::uint32_t ranks);
// The algorithm itself between GPUs that can run it; otherwise what to run instead.
CudaAlgorithm algorithm_among(CudaAbilities abilities, CudaAlgorithm algorithm,
                              std::uint64_t bytes);

}  // namespace arcomm
