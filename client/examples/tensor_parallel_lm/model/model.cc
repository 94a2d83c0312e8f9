#include "client/examples/tensor_parallel_lm/model/model.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <stdexcept>

namespace lm {
namespace {

constexpr std::array<char, 8> kFileMark = {'a', 'r', 'c', 'l', 'm', '0', '0', '1'};
constexpr std::uint64_t kLargestSize = 1 << 16;  // of any Config field read from a file

template <typename Float>
ParametersOf<Float> lay_out(const Config& config, std::span<Float> values) {
  Float* next = values.data();
  const auto take = [&next](std::size_t count) {
    Float* const here = next;
    next += count;
    return here;
  };
  const std::size_t width = config.width;
  ParametersOf<Float> parameters;
  parameters.embedding = take(kHistory * kVocabulary * width);
  for (std::size_t i = 0; i < config.layers; ++i) {
    LayerOf<Float> layer;
    layer.query_key_value = take(width * 3 * width);
    layer.output = take(width * width);
    layer.up = take(width * config.hidden);
    layer.down = take(config.hidden * width);
    parameters.layers.push_back(layer);
  }
  parameters.head = take(width * kVocabulary);
  return parameters;
}

}  // namespace

std::size_t parameter_count(const Config& config) {
  const std::size_t layer = 4 * config.width * config.width + 2 * config.width * config.hidden;
  return (kHistory + 1) * kVocabulary * config.width + config.layers * layer;
}

Parameters parameters_in(const Config& config, std::span<float> values) {
  return lay_out(config, values);
}
ConstParameters parameters_in(const Config& config, std::span<const float> values) {
  return lay_out(config, values);
}

Weights random_weights(const Config& config, std::uint64_t seed) {
  Weights weights{config, std::vector<float>(parameter_count(config))};
  const Parameters parameters = parameters_in(config, std::span(weights.values));
  std::mt19937_64 random(seed);
  const auto fill = [&random](float* values, std::size_t count, std::size_t inputs, float gain) {
    std::normal_distribution<float> normal(0.0F, gain / std::sqrt(static_cast<float>(inputs)));
    std::generate_n(values, count, [&] { return normal(random); });
  };
  const std::size_t width = config.width;
  fill(parameters.embedding, kHistory * kVocabulary * width, kHistory, 1.0F);
  for (const auto& layer : parameters.layers) {
    fill(layer.query_key_value, width * 3 * width, width, 1.0F);
    fill(layer.up, width * config.hidden, width, 1.0F);
    // output, down and head stay zero: training starts at the uniform guess and every layer earns
    // its say.
  }
  return weights;
}

void save_weights(const Weights& weights, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const Config& c = weights.config;
  const std::array<std::uint64_t, 5> sizes = {c.layers, c.width, c.heads, c.hidden, c.context};
  file.write(kFileMark.data(), kFileMark.size());
  file.write(reinterpret_cast<const char*>(sizes.data()), sizeof sizes);
  file.write(reinterpret_cast<const char*>(weights.values.data()),
             static_cast<std::streamsize>(weights.values.size() * sizeof(float)));
  file.close();
  if (!file)
    throw std::runtime_error("cannot write the weights to " + path + ": is the disk full?");
}

Weights load_weights(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open the weights file " + path);
  std::array<char, kFileMark.size()> mark{};
  std::array<std::uint64_t, 5> sizes{};
  file.read(mark.data(), mark.size());
  file.read(reinterpret_cast<char*>(sizes.data()), sizeof sizes);
  if (!file || mark != kFileMark) throw std::runtime_error(path + " is not a weights file");
  const Config config{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
  const bool is_sane = *std::max_element(sizes.begin(), sizes.end()) <= kLargestSize &&
                       *std::min_element(sizes.begin(), sizes.end()) > 0 &&
                       config.width % config.heads == 0;
  if (!is_sane) throw std::runtime_error(path + " describes an impossible model");
  Weights weights{config, std::vector<float>(parameter_count(config))};
  file.read(reinterpret_cast<char*>(weights.values.data()),
            static_cast<std::streamsize>(weights.values.size() * sizeof(float)));
  if (!file) throw std::runtime_error(path + " ends before its last weight");
  return weights;
}

float normalise(std::span<const float> from, std::span<float> to) {
  float squares = 0;
  for (const float x : from) squares += x * x;
  const float factor = 1.0F / std::sqrt(squares / static_cast<float>(from.size()) + 1e-6F);
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i] * factor;
  return factor;
}

float softmax(std::span<float> scores) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  for (float& score : scores) score /= sum;
  return largest + std::log(sum);
}

}  // namespace lm
