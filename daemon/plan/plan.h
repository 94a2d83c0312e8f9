// How one matched operation is carried out: steps, in order. A value; made by the planner, run by
// the executor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "kernels/catalog.h"

namespace arcomm {

// Reduce all ranks' inputs into all ranks' outputs, all of which this device can reach.
struct LaunchStep {
  Choice choice;
  friend bool operator==(const LaunchStep&, const LaunchStep&) = default;
};

// A closed set: who adds a kind of step is shown by the compiler where it must be handled.
using Step = std::variant<LaunchStep>;

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
