// Several AllReduces of different sizes and types, one after the other in one graph, as a model
// captures them: in place, out of place, and on what the one before has just written. With memory
// of its own, inputs that change, and what must come out of each.
// Thread: one. What all ranks must know alike follows from the seed. Failures end the process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/service/sample.h"
#include "tests/gpu/soak/soak_kernels.h"

namespace arcomm::gpu {

class SoakChain {
 public:
  static constexpr std::uint32_t kPatterns = 3;

  struct Parts {
    std::uint32_t number = 0;  // for messages
    arcComm_t comm = nullptr;
    std::uint64_t seed = 0;
    std::uint64_t largest_bytes = 0;  // one operation has almost as much, none has more
    bool is_arc_memory = true;
  };
  // Fills its memory with poison. Waits for all of the GPU's streams.
  explicit SoakChain(const Parts& parts);
  SoakChain(const SoakChain&) = delete;
  SoakChain& operator=(const SoakChain&) = delete;

  std::size_t operations() const { return steps_.size(); }

  // A new graph; the one before must not be running, and neither for instantiate().
  void capture(cudaStream_t stream);
  void instantiate();

  // ---- on the stream, in this order ----
  void poison(cudaStream_t stream);
  void fill(std::uint32_t pattern, cudaStream_t stream);
  void replay(cudaStream_t stream);
  void call(cudaStream_t stream);  // in place of a replay: every operation by itself
  void look(std::uint64_t replay, std::uint32_t pattern, Findings* findings, cudaStream_t stream);

  // What came out of `pattern`, by the host: the stream is idle. How many operations were compared.
  std::size_t compare_on_host(std::uint32_t pattern, cudaStream_t stream);
  std::string describe(const WrongWord& wrong) const;
  // When its communicator is gone.
  void let_go();

 private:
  struct Step {
    Shape shape;
    bool follows = false;              // its input is the output of the one before
    std::uint64_t send = 0, recv = 0;  // bytes into the memory; the same in place
  };
  // Inputs of a pattern as they lie in the first input_bytes_ of the memory, and results as they
  // lie from results_at_ on. What is in place is in both.
  struct Images {
    std::byte *inputs = nullptr, *results = nullptr;  // on the GPU
    Bytes expected;                                   // the results, on the host
  };

  void plan();
  void place();
  Images images_of(std::uint32_t pattern) const;
  const Step* step_at(std::uint64_t byte) const;
  std::uint64_t result_bytes() const { return bytes_ - results_at_; }

  Parts parts_;
  std::vector<Step> steps_;
  std::uint64_t input_bytes_ = 0, results_at_ = 0, bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<Images> images_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t runnable_ = nullptr;
};

}  // namespace arcomm::gpu
