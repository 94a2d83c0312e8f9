// Weights for the tests of the language model. random_weights leaves half of the model at zero,
// which would leave half of the gradient untested.
#pragma once

#include <random>
#include <vector>

#include "client/examples/tensor_parallel_lm/model/model.h"

namespace lm {

inline Weights dense_weights(const Config& config) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  Weights weights{config, std::vector<float>(parameter_count(config))};
  for (float& value : weights.values) value = normal(random);
  return weights;
}

}  // namespace lm
