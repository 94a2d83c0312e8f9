// Loss and gradient of the model on one window of text, written out by hand.
// Thread: one thread per Gradient; it owns the activations of one window and uses them again for
// the next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/examples/tensor_parallel_lm/model/model.h"

namespace lm {

class Gradient {
 public:
  explicit Gradient(const Config& config);

  // Adds the gradient of the mean loss over `text`'s bytes after the first to `sum`, and returns
  // that loss in nats per byte. text.size() <= context + 1.
  float add(const ConstParameters& parameters, std::span<const std::uint8_t> text,
            const Parameters& sum);
  // Probabilities of the next byte after each position of the last add(): [positions, kVocabulary].
  std::span<const float> probabilities() const { return probabilities_; }

 private:
  struct Layer {
    std::vector<float> input;            // [positions, width]: the residual stream before attention
    std::vector<float> input_norm;       // [positions, width]
    std::vector<float> input_factor;     // [positions]
    std::vector<float> query_key_value;  // [positions, 3 * width]
    std::vector<float> attention;        // [heads, positions, positions], 0 above the diagonal
    std::vector<float> mixed;            // [positions, width]: attention applied to the values
    std::vector<float> middle;           // [positions, width]: the residual stream before the MLP
    std::vector<float> middle_norm;      // [positions, width]
    std::vector<float> middle_factor;    // [positions]
    std::vector<float> up;               // [positions, hidden], before activation
    std::vector<float> active;           // [positions, hidden]
  };

  void forward(const ConstParameters& parameters, std::span<const std::uint8_t> text);
  void attend(Layer& layer);
  float backward(const ConstParameters& parameters, std::span<const std::uint8_t> text,
                 const Parameters& sum);
  void attention_backward(const LayerOf<const float>& weights, const Layer& layer,
                          const LayerOf<float>& sum);
  void mlp_backward(const LayerOf<const float>& weights, const Layer& layer,
                    const LayerOf<float>& sum);

  Config config_;
  std::size_t positions_ = 0;
  std::vector<Layer> layers_;
  std::vector<float> stream_;         // [positions, width]: the residual stream
  std::vector<float> stream_norm_;    // [positions, width]
  std::vector<float> stream_factor_;  // [positions]
  std::vector<float> probabilities_;  // [positions, kVocabulary]
  // Of the backward pass: d_x is the gradient of the loss with respect to x.
  std::vector<float> d_stream_;
  std::vector<float> d_norm_;
  std::vector<float> d_mixed_;
  std::vector<float> d_query_key_value_;
  std::vector<float> d_scores_;
  std::vector<float> d_hidden_;
  std::vector<float> d_logits_;
  std::vector<float> transposed_;
};

}  // namespace lm
