// The model: a small causal transformer over bytes, float32, and where its parameters lie in one
// flat array. Thread: plain values. Ownership: Weights owns its array; Parameters points into
// somebody's array.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lm {

inline constexpr std::size_t kVocabulary = 256;  // a token is a byte
inline constexpr std::size_t kHistory =
    4;  // a position's embedding sees its byte and the three before it

struct Config {
  std::size_t layers = 2;
  std::size_t width = 128;   // of the residual stream
  std::size_t heads = 8;     // each width / heads wide
  std::size_t hidden = 512;  // of the MLP
  std::size_t context = 96;  // positions that attention looks back on, its own included

  std::size_t head_width() const { return width / heads; }
  friend bool operator==(const Config&, const Config&) = default;
};

// Matrices are row-major [inputs, outputs]; there are no biases, and norms have no gain.
template <typename Float>
struct LayerOf {
  Float* query_key_value;  // [width, 3 * width]
  Float* output;           // [width, width]
  Float* up;               // [width, hidden]
  Float* down;             // [hidden, width]
};
template <typename Float>
struct ParametersOf {
  Float* embedding;  // [kHistory, kVocabulary, width]: newest byte first
  std::vector<LayerOf<Float>> layers;
  Float* head;  // [width, kVocabulary]
};
using Parameters = ParametersOf<float>;
using ConstParameters = ParametersOf<const float>;

std::size_t parameter_count(const Config& config);
Parameters parameters_in(const Config& config, std::span<float> values);
ConstParameters parameters_in(const Config& config, std::span<const float> values);

struct Weights {
  Config config;
  std::vector<float> values;

  ConstParameters parameters() const { return parameters_in(config, std::span(values)); }
};
Weights random_weights(const Config& config, std::uint64_t seed);

// A file of weights in this machine's byte order. Both throw std::runtime_error, saying which file
// and why.
void save_weights(const Weights& weights, const std::string& path);
Weights load_weights(const std::string& path);

// ---- the arithmetic that training and serving share ----

// to = from / sqrt(mean(from^2)); returns the factor.
float normalise(std::span<const float> from, std::span<float> to);
// Attention prefers what is near: its scores fall by this much per position, differently for each
// head, which also tells positions apart without any learned table (Press et al., ALiBi).
inline float distance_penalty(const Config& config, std::size_t head) {
  return std::exp2(-8.0F * static_cast<float>(head + 1) / static_cast<float>(config.heads));
}
inline float score_scale(const Config& config) {
  return 1.0F / std::sqrt(static_cast<float>(config.head_width()));
}
// Squared ReLU.
inline float activate(float x) {
  return x > 0 ? x * x : 0.0F;
}
inline float activate_slope(float x) {
  return x > 0 ? 2 * x : 0.0F;
}
// Turns scores into probabilities, in place; returns the log of their sum.
float softmax(std::span<float> scores);

}  // namespace lm
