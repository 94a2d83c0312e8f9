#include "client/examples/tensor_parallel_lm/model/shard.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "client/examples/tensor_parallel_lm/model/matrix.h"

namespace lm {
namespace {

struct Slice {
  std::size_t begin;
  std::size_t end;
  std::size_t size() const { return end - begin; }
};

// Rank's share of `total` things, as even as whole things can be.
Slice slice(std::size_t total, int rank, int ranks) {
  const auto r = static_cast<std::size_t>(rank);
  const auto n = static_cast<std::size_t>(ranks);
  return {total * r / n, total * (r + 1) / n};
}

// Appends columns [begin, end) of a matrix's row to `to`.
void append(std::vector<float>& to, const float* row, Slice columns) {
  to.insert(to.end(), row + columns.begin, row + columns.end);
}

}  // namespace

Shard::Shard(const Config& config, const ConstParameters& parameters, int rank, int ranks)
    : config_(config) {
  if (rank < 0 || rank >= ranks || static_cast<std::size_t>(ranks) > config.heads) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                ": a model of " + std::to_string(config.heads) +
                                " heads serves 1 to " + std::to_string(config.heads) + " ranks");
  }
  const Slice heads = slice(config.heads, rank, ranks);
  const Slice hidden = slice(config.hidden, rank, ranks);
  const std::size_t width = config.width;
  const Slice features{heads.begin * config.head_width(), heads.end * config.head_width()};
  first_head_ = heads.begin;
  heads_ = heads.size();
  hidden_ = hidden.size();
  for (const auto& whole : parameters.layers) {
    Layer layer;
    for (std::size_t row = 0; row < width; ++row) {
      for (std::size_t part = 0; part < 3; ++part) {  // query, key, value
        append(layer.query_key_value, whole.query_key_value + (row * 3 + part) * width, features);
      }
      append(layer.up, whole.up + row * config.hidden, hidden);
    }
    layer.output.assign(whole.output + features.begin * width, whole.output + features.end * width);
    layer.down.assign(whole.down + hidden.begin * width, whole.down + hidden.end * width);
    layers_.push_back(std::move(layer));
  }
}

void Shard::begin(std::size_t sequences) {
  for (Layer& layer : layers_) {
    layer.keys.assign(sequences * config_.context * heads_ * config_.head_width(), 0.0F);
    layer.values = layer.keys;
  }
}

void Shard::attention(std::size_t index, std::span<const Row> rows, std::span<const float> norm,
                      std::span<float> partial) {
  Layer& layer = layers_[index];
  const std::size_t features = heads_ * config_.head_width();
  query_key_value_.resize(rows.size() * 3 * features);
  mixed_.resize(rows.size() * features);
  multiply({.rows = rows.size(),
            .inner = config_.width,
            .columns = 3 * features,
            .a = norm.data(),
            .a_row_stride = config_.width,
            .b = layer.query_key_value.data(),
            .b_stride = 3 * features,
            .c = query_key_value_.data(),
            .c_stride = 3 * features});
  // A row is cached and attends before the next is cached: a later position of the same call may
  // take the ring's oldest place, which this one still looks at.
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* const query = query_key_value_.data() + r * 3 * features;
    const std::size_t place =
        rows[r].sequence * config_.context + rows[r].position % config_.context;
    std::copy_n(query + features, features, layer.keys.data() + place * features);
    std::copy_n(query + 2 * features, features, layer.values.data() + place * features);
    attend(layer, rows[r], query, mixed_.data() + r * features);
  }
  multiply({.rows = rows.size(),
            .inner = features,
            .columns = config_.width,
            .a = mixed_.data(),
            .a_row_stride = features,
            .b = layer.output.data(),
            .b_stride = config_.width,
            .c = partial.data(),
            .c_stride = config_.width});
}

void Shard::attend(const Layer& layer, const Row& row, const float* query, float* mixed) {
  const std::size_t head_width = config_.head_width();
  const std::size_t features = heads_ * head_width;
  const std::size_t seen = std::min(row.position + 1, config_.context);
  const float scale = score_scale(config_);
  scores_.resize(seen);
  const auto place = [&](std::size_t back) {
    return (row.sequence * config_.context + (row.position - back) % config_.context) * features;
  };
  for (std::size_t head = 0; head < heads_; ++head, query += head_width, mixed += head_width) {
    const float penalty = distance_penalty(config_, first_head_ + head);
    for (std::size_t back = 0; back < seen; ++back) {
      const float* const key = layer.keys.data() + place(back) + head * head_width;
      float score = 0;
      for (std::size_t i = 0; i < head_width; ++i) score += query[i] * key[i];
      scores_[back] = score * scale - penalty * static_cast<float>(back);
    }
    softmax(scores_);
    std::fill_n(mixed, head_width, 0.0F);
    for (std::size_t back = 0; back < seen; ++back) {
      const float* const value = layer.values.data() + place(back) + head * head_width;
      for (std::size_t i = 0; i < head_width; ++i) mixed[i] += scores_[back] * value[i];
    }
  }
}

void Shard::mlp(std::size_t index, std::span<const float> norm, std::span<float> partial) {
  const Layer& layer = layers_[index];
  const std::size_t rows = norm.size() / config_.width;
  active_.resize(rows * hidden_);
  multiply({.rows = rows,
            .inner = config_.width,
            .columns = hidden_,
            .a = norm.data(),
            .a_row_stride = config_.width,
            .b = layer.up.data(),
            .b_stride = hidden_,
            .c = active_.data(),
            .c_stride = hidden_});
  std::transform(active_.begin(), active_.end(), active_.begin(), activate);
  multiply({.rows = rows,
            .inner = hidden_,
            .columns = config_.width,
            .a = active_.data(),
            .a_row_stride = hidden_,
            .b = layer.down.data(),
            .b_stride = config_.width,
            .c = partial.data(),
            .c_stride = config_.width});
}

}  // namespace lm
