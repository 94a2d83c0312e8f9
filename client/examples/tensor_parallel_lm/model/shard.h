// One rank's part of the model, after Megatron-LM: whole attention heads and columns of the MLP.
// The first matrix of each pair is cut by columns and the second by rows, so that a rank needs
// nothing from the others in between, and what the ranks get out of the second are summands of one
// whole: one AllReduce after attention, one after the MLP. Thread: one thread per Shard. Ownership:
// owns its slices and its key/value cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/examples/tensor_parallel_lm/model/model.h"

namespace lm {

// One position of one sequence to compute.
struct Row {
  std::size_t sequence = 0;  // which cache
  std::size_t position = 0;  // 0-based; a sequence's positions come in order
  std::uint8_t bytes[kHistory] =
      {};  // the byte at this position and the ones before it, newest first; 0 before the text
};

class Shard {
 public:
  // Throws std::invalid_argument if there are more ranks than heads.
  Shard(const Config& config, const ConstParameters& parameters, int rank, int ranks);

  // Makes room for sequences 0 .. count-1 and forgets what was cached.
  void begin(std::size_t sequences);
  // This rank's summand of attention's output for `rows`, whose normalised streams are `norm`. Both
  // are [rows, width]. Adds the rows' keys and values to the cache first.
  void attention(std::size_t layer, std::span<const Row> rows, std::span<const float> norm,
                 std::span<float> partial);
  // The same for the MLP.
  void mlp(std::size_t layer, std::span<const float> norm, std::span<float> partial);

  std::size_t heads() const { return heads_; }
  std::size_t hidden() const { return hidden_; }

 private:
  struct Layer {
    std::vector<float> query_key_value;  // [width, 3 * heads * head_width]
    std::vector<float> output;           // [heads * head_width, width]
    std::vector<float> up;               // [width, hidden]
    std::vector<float> down;             // [hidden, width]
    std::vector<float>
        keys;  // [sequences, context, heads * head_width]: a ring of the last positions
    std::vector<float> values;  // the same
  };
  void attend(const Layer& layer, const Row& row, const float* query, float* mixed);

  Config config_;
  std::size_t first_head_ = 0;
  std::size_t heads_ = 0;
  std::size_t hidden_ = 0;
  std::vector<Layer> layers_;
  std::vector<float> query_key_value_;  // scratch
  std::vector<float> mixed_;
  std::vector<float> active_;
  std::vector<float> scores_;
};

}  // namespace lm
