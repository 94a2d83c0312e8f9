// The forward pass while serving: what every rank computes for itself, around the parts that the
// ranks share. Thread: one thread per Transformer. Ownership: borrows the parameters and the
// LayerSums for its life.
#pragma once

#include <span>
#include <vector>

#include "client/examples/tensor_parallel_lm/model/model.h"
#include "client/examples/tensor_parallel_lm/model/shard.h"

namespace lm {

// Attention's and the MLP's output, summed over all ranks. `norm` and the result are [rows, width];
// the result is valid until the next call.
class LayerSums {
 public:
  virtual ~LayerSums() = default;
  virtual void begin(std::size_t sequences) = 0;
  virtual std::span<const float> attention(std::size_t layer, std::span<const Row> rows,
                                           std::span<const float> norm) = 0;
  virtual std::span<const float> mlp(std::size_t layer, std::span<const float> norm) = 0;
};

// The reference: all ranks in this process, without a library. Floating-point sums depend on their
// order, so a model that is not cut at all would give other last bits, now and then another token,
// and nothing could be compared. This computes the same partial sums as the ranks do and adds them
// in rank order, ((p0 + p1) + p2) + ..., which is the order that arcAllReduce promises: its logits
// are those of the sharded run, bit for bit.
class OneProcess : public LayerSums {
 public:
  OneProcess(const Weights& weights, int ranks);
  void begin(std::size_t sequences) override;
  std::span<const float> attention(std::size_t layer, std::span<const Row> rows,
                                   std::span<const float> norm) override;
  std::span<const float> mlp(std::size_t layer, std::span<const float> norm) override;

 private:
  void add(std::size_t rank);

  std::vector<Shard> shards_;
  std::vector<float> partial_;
  std::vector<float> sum_;
};

class Transformer {
 public:
  Transformer(const Config& config, const ConstParameters& parameters, LayerSums& layers);

  void begin(std::size_t sequences) { layers_.begin(sequences); }
  // Scores of the next byte after each row: [rows, kVocabulary], valid until the next call.
  std::span<const float> logits(std::span<const Row> rows);

 private:
  Config config_;
  ConstParameters parameters_;
  LayerSums& layers_;
  std::vector<float> stream_;
  std::vector<float> norm_;
  std::vector<float> logits_;
};

}  // namespace lm
