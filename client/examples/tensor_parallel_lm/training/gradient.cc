#include "client/examples/tensor_parallel_lm/training/gradient.h"

#include <algorithm>

#include "client/examples/tensor_parallel_lm/model/matrix.h"

namespace lm {
namespace {

struct Shape {
  std::size_t rows;
  std::size_t inputs;
  std::size_t outputs;
};

// out = in * weights, or out += in * weights.
void apply(const Shape& shape, const float* in, const float* weights, float* out,
           bool accumulate = false) {
  multiply({.rows = shape.rows,
            .inner = shape.inputs,
            .columns = shape.outputs,
            .a = in,
            .a_row_stride = shape.inputs,
            .b = weights,
            .b_stride = shape.outputs,
            .c = out,
            .c_stride = shape.outputs,
            .accumulate = accumulate});
}

// The backward pass of apply(): d_in = d_out * weights^T; d_weights += in^T * d_out.
void apply_backward(const Shape& shape, const float* in, const float* weights, const float* d_out,
                    float* d_in, float* d_weights, std::vector<float>& scratch) {
  multiply({.rows = shape.inputs,
            .inner = shape.rows,
            .columns = shape.outputs,
            .a = in,
            .a_row_stride = 1,
            .a_column_stride = shape.inputs,
            .b = d_out,
            .b_stride = shape.outputs,
            .c = d_weights,
            .c_stride = shape.outputs,
            .accumulate = true});
  transpose(weights, shape.outputs, shape.inputs, shape.outputs, scratch.data());
  multiply({.rows = shape.rows,
            .inner = shape.outputs,
            .columns = shape.inputs,
            .a = d_out,
            .a_row_stride = shape.outputs,
            .b = scratch.data(),
            .b_stride = shape.inputs,
            .c = d_in,
            .c_stride = shape.inputs});
}

void normalise_rows(std::size_t rows, std::size_t width, const float* from, float* to,
                    float* factors) {
  for (std::size_t r = 0; r < rows; ++r) {
    factors[r] = normalise({from + r * width, width}, {to + r * width, width});
  }
}

// d_from += d_to passed back through normalise().
void normalise_rows_backward(std::size_t rows, std::size_t width, const float* to,
                             const float* factors, const float* d_to, float* d_from) {
  for (std::size_t r = 0; r < rows; ++r, to += width, d_to += width, d_from += width) {
    float along = 0;
    for (std::size_t i = 0; i < width; ++i) along += d_to[i] * to[i];
    along /= static_cast<float>(width);
    for (std::size_t i = 0; i < width; ++i) d_from[i] += factors[r] * (d_to[i] - to[i] * along);
  }
}

}  // namespace

Gradient::Gradient(const Config& config) : config_(config), layers_(config.layers) {
  const std::size_t n = config.context;
  const std::size_t width = config.width;
  for (Layer& layer : layers_) {
    for (auto* field :
         {&layer.input, &layer.input_norm, &layer.mixed, &layer.middle, &layer.middle_norm}) {
      field->resize(n * width);
    }
    layer.input_factor.resize(n);
    layer.middle_factor.resize(n);
    layer.query_key_value.resize(n * 3 * width);
    layer.attention.resize(config.heads * n * n);
    layer.up.resize(n * config.hidden);
    layer.active.resize(n * config.hidden);
  }
  for (auto* field : {&stream_, &stream_norm_, &d_stream_, &d_norm_, &d_mixed_})
    field->resize(n * width);
  stream_factor_.resize(n);
  probabilities_.resize(n * kVocabulary);
  d_logits_.resize(n * kVocabulary);
  d_query_key_value_.resize(n * 3 * width);
  d_scores_.resize(n * n);
  d_hidden_.resize(n * config.hidden);
  transposed_.resize(std::max({width * 3 * width, width * config.hidden, width * kVocabulary,
                               n * std::max(n, config.head_width())}));
}

float Gradient::add(const ConstParameters& parameters, std::span<const std::uint8_t> text,
                    const Parameters& sum) {
  positions_ = text.size() - 1;
  forward(parameters, text);
  return backward(parameters, text, sum);
}

void Gradient::forward(const ConstParameters& parameters, std::span<const std::uint8_t> text) {
  const std::size_t width = config_.width;
  for (std::size_t t = 0; t < positions_; ++t) {
    float* const row = stream_.data() + t * width;
    std::fill_n(row, width, 0.0F);
    for (std::size_t back = 0; back < kHistory; ++back) {
      const std::size_t byte = t >= back ? text[t - back] : 0;
      const float* const embedded = parameters.embedding + (back * kVocabulary + byte) * width;
      for (std::size_t i = 0; i < width; ++i) row[i] += embedded[i];
    }
  }
  const auto norm = [&](const std::vector<float>& from, std::vector<float>& to,
                        std::vector<float>& factors) {
    normalise_rows(positions_, width, from.data(), to.data(), factors.data());
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const auto& weights = parameters.layers[l];
    layer.input = stream_;
    norm(layer.input, layer.input_norm, layer.input_factor);
    apply({positions_, width, 3 * width}, layer.input_norm.data(), weights.query_key_value,
          layer.query_key_value.data());
    attend(layer);
    apply({positions_, width, width}, layer.mixed.data(), weights.output, stream_.data(), true);

    layer.middle = stream_;
    norm(layer.middle, layer.middle_norm, layer.middle_factor);
    apply({positions_, width, config_.hidden}, layer.middle_norm.data(), weights.up,
          layer.up.data());
    std::transform(layer.up.begin(), layer.up.end(), layer.active.begin(), activate);
    apply({positions_, config_.hidden, width}, layer.active.data(), weights.down, stream_.data(),
          true);
  }
  norm(stream_, stream_norm_, stream_factor_);
  apply({positions_, width, kVocabulary}, stream_norm_.data(), parameters.head,
        probabilities_.data());
}

void Gradient::attend(Layer& layer) {
  const std::size_t width = config_.width;
  const std::size_t head_width = config_.head_width();
  const std::size_t n = positions_;
  const float scale = score_scale(config_);
  for (std::size_t head = 0; head < config_.heads; ++head) {
    const float* const query = layer.query_key_value.data() + head * head_width;
    const float* const key = query + width;
    const float* const value = key + width;
    float* const attention = layer.attention.data() + head * n * n;
    transpose(key, 3 * width, n, head_width, transposed_.data());
    multiply({.rows = n,
              .inner = head_width,
              .columns = n,
              .a = query,
              .a_row_stride = 3 * width,
              .b = transposed_.data(),
              .b_stride = n,
              .c = attention,
              .c_stride = n});
    const float penalty = distance_penalty(config_, head);
    for (std::size_t t = 0; t < n; ++t) {
      float* const row = attention + t * n;
      for (std::size_t s = 0; s <= t; ++s)
        row[s] = row[s] * scale - penalty * static_cast<float>(t - s);
      softmax({row, t + 1});
      std::fill(row + t + 1, row + n, 0.0F);
    }
    multiply({.rows = n,
              .inner = n,
              .columns = head_width,
              .a = attention,
              .a_row_stride = n,
              .b = value,
              .b_stride = 3 * width,
              .c = layer.mixed.data() + head * head_width,
              .c_stride = width});
  }
}

float Gradient::backward(const ConstParameters& parameters, std::span<const std::uint8_t> text,
                         const Parameters& sum) {
  const std::size_t width = config_.width;
  const float share = 1.0F / static_cast<float>(positions_);
  float loss = 0;
  for (std::size_t t = 0; t < positions_; ++t) {
    float* const row = probabilities_.data() + t * kVocabulary;
    const std::uint8_t next = text[t + 1];
    const float score = row[next];
    loss += softmax({row, kVocabulary}) - score;
    float* const d_row = d_logits_.data() + t * kVocabulary;
    for (std::size_t i = 0; i < kVocabulary; ++i) d_row[i] = row[i] * share;
    d_row[next] -= share;
  }
  apply_backward({positions_, width, kVocabulary}, stream_norm_.data(), parameters.head,
                 d_logits_.data(), d_norm_.data(), sum.head, transposed_);
  std::fill(d_stream_.begin(), d_stream_.end(), 0.0F);
  normalise_rows_backward(positions_, width, stream_norm_.data(), stream_factor_.data(),
                          d_norm_.data(), d_stream_.data());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    mlp_backward(parameters.layers[l], layers_[l], sum.layers[l]);
    attention_backward(parameters.layers[l], layers_[l], sum.layers[l]);
  }
  for (std::size_t t = 0; t < positions_; ++t) {
    const float* const d_row = d_stream_.data() + t * width;
    for (std::size_t back = 0; back < kHistory; ++back) {
      const std::size_t byte = t >= back ? text[t - back] : 0;
      float* const embedded = sum.embedding + (back * kVocabulary + byte) * width;
      for (std::size_t i = 0; i < width; ++i) embedded[i] += d_row[i];
    }
  }
  return loss * share;
}

void Gradient::mlp_backward(const LayerOf<const float>& weights, const Layer& layer,
                            const LayerOf<float>& sum) {
  const std::size_t width = config_.width;
  const std::size_t hidden = config_.hidden;
  apply_backward({positions_, hidden, width}, layer.active.data(), weights.down, d_stream_.data(),
                 d_hidden_.data(), sum.down, transposed_);
  for (std::size_t i = 0; i < positions_ * hidden; ++i) d_hidden_[i] *= activate_slope(layer.up[i]);
  apply_backward({positions_, width, hidden}, layer.middle_norm.data(), weights.up,
                 d_hidden_.data(), d_norm_.data(), sum.up, transposed_);
  normalise_rows_backward(positions_, width, layer.middle_norm.data(), layer.middle_factor.data(),
                          d_norm_.data(), d_stream_.data());
}

void Gradient::attention_backward(const LayerOf<const float>& weights, const Layer& layer,
                                  const LayerOf<float>& sum) {
  const std::size_t width = config_.width;
  const std::size_t head_width = config_.head_width();
  const std::size_t n = positions_;
  const float scale = score_scale(config_);
  apply_backward({n, width, width}, layer.mixed.data(), weights.output, d_stream_.data(),
                 d_mixed_.data(), sum.output, transposed_);
  for (std::size_t head = 0; head < config_.heads; ++head) {
    const float* const query = layer.query_key_value.data() + head * head_width;
    const float* const key = query + width;
    const float* const value = key + width;
    const float* const attention = layer.attention.data() + head * n * n;
    const float* const d_mixed = d_mixed_.data() + head * head_width;
    float* const d_query = d_query_key_value_.data() + head * head_width;
    float* const d_key = d_query + width;
    float* const d_value = d_key + width;
    // d_value = attention^T * d_mixed; d_attention = d_mixed * value^T.
    multiply({.rows = n,
              .inner = n,
              .columns = head_width,
              .a = attention,
              .a_row_stride = 1,
              .a_column_stride = n,
              .b = d_mixed,
              .b_stride = width,
              .c = d_value,
              .c_stride = 3 * width});
    transpose(value, 3 * width, n, head_width, transposed_.data());
    multiply({.rows = n,
              .inner = head_width,
              .columns = n,
              .a = d_mixed,
              .a_row_stride = width,
              .b = transposed_.data(),
              .b_stride = n,
              .c = d_scores_.data(),
              .c_stride = n});
    for (std::size_t t = 0; t < n; ++t) {  // back through softmax and the scale
      const float* const p = attention + t * n;
      float* const d = d_scores_.data() + t * n;
      float along = 0;
      for (std::size_t s = 0; s <= t; ++s) along += p[s] * d[s];
      for (std::size_t s = 0; s <= t; ++s) d[s] = p[s] * (d[s] - along) * scale;
      std::fill(d + t + 1, d + n, 0.0F);
    }
    multiply({.rows = n,
              .inner = n,
              .columns = head_width,
              .a = d_scores_.data(),
              .a_row_stride = n,
              .b = key,
              .b_stride = 3 * width,
              .c = d_query,
              .c_stride = 3 * width});
    multiply({.rows = n,
              .inner = n,
              .columns = head_width,
              .a = d_scores_.data(),
              .a_row_stride = 1,
              .a_column_stride = n,
              .b = query,
              .b_stride = 3 * width,
              .c = d_key,
              .c_stride = 3 * width});
  }
  apply_backward({n, width, 3 * width}, layer.input_norm.data(), weights.query_key_value,
                 d_query_key_value_.data(), d_norm_.data(), sum.query_key_value, transposed_);
  normalise_rows_backward(n, width, layer.input_norm.data(), layer.input_factor.data(),
                          d_norm_.data(), d_stream_.data());
}

}  // namespace lm
