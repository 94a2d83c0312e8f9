// The ranks' layer sums in a rank process: this rank's shard, and AllReduce over the partial sums.
// Thread: one thread per AllReduced. Ownership: owns the communicator, the buffer and the plans;
// borrows the Shard.
#pragma once

#include <cstddef>
#include <map>
#include <span>

#include "client/examples/tensor_parallel_lm/model/transformer.h"
#include "client/examples/tensor_parallel_lm/serving/recording.h"
#include "client/examples/tensor_parallel_lm/serving/serve.h"
#include "client/include/arclient.hpp"

namespace lm {

class AllReduced : public LayerSums {
 public:
  // Blocks until all ranks are there. Throws arc::Error.
  AllReduced(Shard& shard, const Config& config, const arcUniqueId& id, const RankOptions& options);

  void begin(std::size_t sequences) override;
  std::span<const float> attention(std::size_t layer, std::span<const Row> rows,
                                   std::span<const float> norm) override;
  std::span<const float> mlp(std::size_t layer, std::span<const float> norm) override;

  const AllReduceCost& cost() const { return cost_; }  // since begin()
  void flush_record() { record_.flush(); }

 private:
  std::span<const float> sum(std::size_t count);
  arc::Plan* plan_for(std::size_t count);

  Shard& shard_;
  arc::Communicator comm_;
  arc::Buffer<float> buffer_;               // the daemon's memory: it is summed where it lies
  std::map<std::size_t, arc::Plan> plans_;  // by count
  std::map<std::size_t, unsigned> uses_;    // by count, until a plan is worth making
  AllReduceCost cost_;
  Recording record_;
};

}  // namespace lm
