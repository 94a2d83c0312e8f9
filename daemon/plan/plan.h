// How one matched operation is carried out: steps, in order. A value; made by the planner, run by
// the executor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "kernels/catalog.h"
#include "kernels/cuda_algorithms.h"

namespace arcomm {

// Reduce all ranks' inputs into all ranks' outputs, all of which this device can reach.
struct LaunchStep {
  Choice choice;
  friend bool operator==(const LaunchStep&, const LaunchStep&) = default;
};

// The same between GPUs: a kernel on each rank's, which reach each other's memory.
struct KernelStep {
  CudaAlgorithm algorithm;
  friend bool operator==(const KernelStep&, const KernelStep&) = default;
};

// Copy engines carry the parts between GPUs and SMs combine them, in one order for all ranks.
struct CopyStep {
  std::uint64_t most_chunk_bytes = 0;  // 0: what the ranks' memory allows
  friend bool operator==(const CopyStep&, const CopyStep&) = default;
};

// A closed set: who adds a kind of step is shown by the compiler where it must be handled. A host
// runs LaunchStep, GPUs the other two.
using Step = std::variant<LaunchStep, KernelStep, CopyStep>;

// No allocation: plans are made on the hot path.
class Plan {
 public:
  void add(Step step) { steps_[count_++] = step; }
  std::span<const Step> steps() const { return {steps_.data(), count_}; }
  bool empty() const { return count_ == 0; }
  friend bool operator==(const Plan&, const Plan&) = default;

 private:
  static constexpr std::size_t kMaxSteps = 4;
  std::array<Step, kMaxSteps> steps_{};
  std::size_t count_ = 0;
};

}  // namespace arcomm
