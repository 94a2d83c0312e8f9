// Training: AdamW over random windows of a text, on one core.
// Thread: runs in the caller's. Determinism: the same text, options and seed give the same weights
// on the same kind of machine, as long as max_seconds does not end the training early.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "client/examples/tensor_parallel_lm/model/model.h"

namespace lm {

struct TrainOptions {
  Config config;
  std::size_t steps = 450;
  std::size_t windows_per_step = 4;
  double max_seconds =
      12;  // past 60% of it the learning rate starts to fall, so that it ends well wherever it ends
  std::uint64_t seed = 1;
};
struct TrainProgress {
  std::size_t step = 0;
  float loss = 0;  // nats per byte, mean since the last report
  double seconds = 0;
};

// Calls `report` about ten times. text must be longer than config.context + 1 bytes.
Weights train(std::span<const std::uint8_t> text, const TrainOptions& options,
              const std::function<void(const TrainProgress&)>& report);

}  // namespace lm
