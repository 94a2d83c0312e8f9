#include "client/examples/tensor_parallel_lm/training/train.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "client/examples/tensor_parallel_lm/training/gradient.h"

namespace lm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kLearningRate = 2e-3F;
constexpr float kWarmupSteps = 20;
constexpr double kDecayFrom = 0.4;  // of the steps
constexpr double kHurryFrom = 0.6;  // of the time

// Sixteen sums at once, so that no addition waits for the one before it.
float length_of(std::span<const float> vector) {
  std::array<float, 16> squares{};
  for (std::size_t i = 0; i < vector.size(); ++i) squares[i % 16] += vector[i] * vector[i];
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0F));
}

// Loshchilov and Hutter's AdamW with a bound on the gradient's length.
class AdamW {
 public:
  explicit AdamW(std::size_t parameters) : mean_(parameters), square_(parameters) {}

  void step(std::span<float> weights, std::span<const float> gradient, float learning_rate) {
    constexpr float kKeepMean = 0.9F;
    constexpr float kKeepSquare = 0.98F;
    constexpr float kDecay = 0.05F;
    constexpr float kLongest = 1.0F;
    ++steps_;
    const float length = length_of(gradient);
    const float shorten = length > kLongest ? kLongest / length : 1.0F;
    const float mean_bias = 1.0F - std::pow(kKeepMean, steps_);
    const float square_bias = 1.0F - std::pow(kKeepSquare, steps_);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float g = gradient[i] * shorten;
      mean_[i] = kKeepMean * mean_[i] + (1 - kKeepMean) * g;
      square_[i] = kKeepSquare * square_[i] + (1 - kKeepSquare) * g * g;
      const float direction =
          (mean_[i] / mean_bias) / (std::sqrt(square_[i] / square_bias) + 1e-8F);
      weights[i] -= learning_rate * (direction + kDecay * weights[i]);
    }
  }

 private:
  std::vector<float> mean_;
  std::vector<float> square_;
  float steps_ = 0;
};

// Rises, stays, falls to zero: by step while there is time, by time when it runs short.
float learning_rate(std::size_t step, std::size_t steps, double time_share) {
  const double step_share = static_cast<double>(step) / static_cast<double>(steps);
  const double fall = std::max((step_share - kDecayFrom) / (1 - kDecayFrom),
                               (time_share - kHurryFrom) / (1 - kHurryFrom));
  const float rise = std::min(1.0F, static_cast<float>(step + 1) / kWarmupSteps);
  return kLearningRate * rise * static_cast<float>(std::clamp(1 - fall, 0.02, 1.0));
}

}  // namespace

Weights train(std::span<const std::uint8_t> text, const TrainOptions& options,
              const std::function<void(const TrainProgress&)>& report) {
  const Config& config = options.config;
  Weights weights = random_weights(config, options.seed);
  std::vector<float> sum(weights.values.size());
  AdamW optimiser(weights.values.size());
  Gradient gradient(config);
  const Parameters sum_parameters = parameters_in(config, std::span(sum));
  const ConstParameters parameters = weights.parameters();
  std::mt19937_64 random(options.seed);

  const auto started = Clock::now();
  const std::size_t report_every = std::max<std::size_t>(1, options.steps / 8);
  double loss = 0;
  std::size_t losses = 0;
  for (std::size_t step = 0; step < options.steps; ++step) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - started).count();
    const bool is_out_of_time = elapsed >= options.max_seconds;
    if (losses > 0 && (step % report_every == 0 || is_out_of_time)) {
      report({step, static_cast<float>(loss / static_cast<double>(losses)), elapsed});
      loss = 0;
      losses = 0;
    }
    if (is_out_of_time) break;
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::size_t window = 0; window < options.windows_per_step; ++window) {
      const std::size_t at = random() % (text.size() - config.context);
      loss += gradient.add(parameters, text.subspan(at, config.context + 1), sum_parameters);
      ++losses;
    }
    for (float& g : sum) g /= static_cast<float>(options.windows_per_step);
    optimiser.step(weights.values, sum,
                   learning_rate(step, options.steps, elapsed / options.max_seconds));
  }
  if (losses > 0) {
    report({options.steps, static_cast<float>(loss / static_cast<double>(losses)),
            std::chrono::duration<double>(Clock::now() - started).count()});
  }
  return weights;
}

}  // namespace lm
