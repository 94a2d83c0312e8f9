#include "client/examples/tensor_parallel_lm/serving/all_reduced.h"

#include <chrono>

namespace lm {

AllReduced::AllReduced(Shard& shard, const Config& config, const arcUniqueId& id,
                       const RankOptions& options)
    : shard_(shard),
      comm_(options.ranks, id, options.rank, arc::with_codec(options.codec)),
      buffer_(kMostRows * config.width),
      record_(options.record_path) {}

void AllReduced::begin(std::size_t sequences) {
  shard_.begin(sequences);
  cost_ = {};
}

std::span<const float> AllReduced::attention(std::size_t layer, std::span<const Row> rows,
                                             std::span<const float> norm) {
  shard_.attention(layer, rows, norm, {buffer_.data(), norm.size()});
  return sum(norm.size());
}

std::span<const float> AllReduced::mlp(std::size_t layer, std::span<const float> norm) {
  shard_.mlp(layer, norm, {buffer_.data(), norm.size()});
  return sum(norm.size());
}

std::span<const float> AllReduced::sum(std::size_t count) {
  record_.add({buffer_.data(), count});
  const auto started = std::chrono::steady_clock::now();
  if (arc::Plan* const plan = plan_for(count)) {
    plan->start();
    plan->wait();
  } else {
    comm_.all_reduce(buffer_.data(), buffer_.data(), count);
  }
  cost_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  ++cost_.calls;
  return {buffer_.data(), count};
}

// On a host, small operations run within the calls of the ranks, faster than any plan's. Larger
// ones get a plan where the same count comes over and over, made once and then started. Every rank
// sees the same counts in the same order, so all of them decide alike.
arc::Plan* AllReduced::plan_for(std::size_t count) {
  constexpr std::size_t kMostBytesInCall = 16 << 10;  // as host.in_call_bytes has it by itself
  constexpr unsigned kUsesBeforePlan = 32;
  if (count * sizeof(float) <= kMostBytesInCall) return nullptr;
  if (const auto known = plans_.find(count); known != plans_.end()) return &known->second;
  if (++uses_[count] < kUsesBeforePlan) return nullptr;
  arc::Plan plan(comm_, buffer_.data(), buffer_.data(), count);
  return &plans_.emplace(count, std::move(plan)).first->second;
}

}  // namespace lm
