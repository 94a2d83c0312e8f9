// A communicator with its chains, and the order of its operations: they may go from one of its
// streams to the other, and each stream then waits for what the other was given. The streams are
// its own alone: one that two communicators share would put their operations in an order, which
// other ranks see reversed.
// Thread: one. Failures end the process.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/soak/soak_chain.h"
#include "tests/gpu/soak/soak_kernels.h"

namespace arcomm::gpu {

class SoakLane {
 public:
  static constexpr std::uint32_t kChains = 3;

  // Blocks until all ranks have called. shared: the same on all of them. Its first operations are
  // done when it returns.
  SoakLane(std::uint32_t number, const arcUniqueId& id, std::mt19937_64& shared);
  SoakLane(const SoakLane&) = delete;
  SoakLane& operator=(const SoakLane&) = delete;

  arcComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return streams_[current_]; }
  void change_stream();
  SoakChain& chain(std::size_t number) { return *chains_[number]; }

  // On the stream: compares what the chain's replay before has left.
  void look(std::size_t chain, std::uint64_t replay, std::uint32_t pattern);
  // Until the streams are idle, for a limited time.
  void wait(const char* what);
  // And whether all went well, and nothing was found to be wrong.
  void settle(const char* what);
  // Of memory that holds poison the comparison must find that it is wrong.
  void try_the_comparison();
  void leave();

 private:
  void read_findings();
  void forget_findings();

  arcComm_t comm_ = nullptr;
  std::array<cudaStream_t, 2> streams_{};
  std::size_t current_ = 0;
  cudaEvent_t moved_ = nullptr;
  std::vector<std::unique_ptr<SoakChain>> chains_;
  Findings *findings_ = nullptr, *seen_ = nullptr;  // on the GPU, pinned
};

}  // namespace arcomm::gpu
