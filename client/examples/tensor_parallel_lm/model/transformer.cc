#include "client/examples/tensor_parallel_lm/model/transformer.h"

#include <algorithm>

#include "client/examples/tensor_parallel_lm/model/matrix.h"

namespace lm {

OneProcess::OneProcess(const Weights& weights, int ranks) {
  const ConstParameters parameters = weights.parameters();
  for (int rank = 0; rank < ranks; ++rank)
    shards_.emplace_back(weights.config, parameters, rank, ranks);
}

void OneProcess::begin(std::size_t sequences) {
  for (Shard& shard : shards_) shard.begin(sequences);
}

std::span<const float> OneProcess::attention(std::size_t layer, std::span<const Row> rows,
                                             std::span<const float> norm) {
  partial_.resize(norm.size());
  for (std::size_t rank = 0; rank < shards_.size(); ++rank) {
    shards_[rank].attention(layer, rows, norm, partial_);
    add(rank);
  }
  return sum_;
}

std::span<const float> OneProcess::mlp(std::size_t layer, std::span<const float> norm) {
  partial_.resize(norm.size());
  for (std::size_t rank = 0; rank < shards_.size(); ++rank) {
    shards_[rank].mlp(layer, norm, partial_);
    add(rank);
  }
  return sum_;
}

void OneProcess::add(std::size_t rank) {
  if (rank == 0) {
    sum_ = partial_;
    return;
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += partial_[i];
}

Transformer::Transformer(const Config& config, const ConstParameters& parameters, LayerSums& layers)
    : config_(config), parameters_(parameters), layers_(layers) {}

std::span<const float> Transformer::logits(std::span<const Row> rows) {
  const std::size_t width = config_.width;
  stream_.assign(rows.size() * width, 0.0F);
  norm_.resize(rows.size() * width);
  logits_.resize(rows.size() * kVocabulary);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t back = 0; back < kHistory; ++back) {
      const float* const embedded =
          parameters_.embedding + (back * kVocabulary + rows[r].bytes[back]) * width;
      for (std::size_t i = 0; i < width; ++i) stream_[r * width + i] += embedded[i];
    }
  }
  const auto normalise_stream = [&] {
    for (std::size_t at = 0; at < stream_.size(); at += width) {
      normalise({stream_.data() + at, width}, {norm_.data() + at, width});
    }
  };
  const auto add_to_stream = [&](std::span<const float> sum) {
    std::transform(stream_.begin(), stream_.end(), sum.begin(), stream_.begin(), std::plus<>());
  };
  for (std::size_t layer = 0; layer < config_.layers; ++layer) {
    normalise_stream();
    add_to_stream(layers_.attention(layer, rows, norm_));
    normalise_stream();
    add_to_stream(layers_.mlp(layer, norm_));
  }
  normalise_stream();
  multiply({.rows = rows.size(),
            .inner = width,
            .columns = kVocabulary,
            .a = norm_.data(),
            .a_row_stride = width,
            .b = parameters_.head,
            .b_stride = kVocabulary,
            .c = logits_.data(),
            .c_stride = kVocabulary});
  return logits_;
}

}  // namespace lm
