#include "client/examples/tensor_parallel_lm/all_reduced.h"

#include <stdexcept>
#include <string>

namespace lm {
namespace {

void check(arcResult_t result, const std::string& doing) {
  if (result == arcSuccess) return;
  throw std::runtime_error(doing + ": " + arcGetErrorString(result) + ": " +
                           arcGetLastError(nullptr));
}

}  // namespace

AllReduced::AllReduced(Shard& shard, const Config& config, const arcUniqueId& id,
                       const RankOptions& options)
    : shard_(shard), capacity_(kMostRows * config.width) {
  const std::string who = "rank " + std::to_string(options.rank);
  check(arcInit(nullptr), who + " cannot attach to arcommd");
  check(arcCommInitRank(&comm_, options.ranks, id, options.rank),
        who + " cannot join the communicator");
  void* memory = nullptr;
  check(arcMemAlloc(&memory, capacity_ * sizeof(float)), who + " cannot allocate its buffer");
  buffer_ = static_cast<float*>(memory);
}

AllReduced::~AllReduced() {
  // On the way out there is nobody to tell; the daemon frees whatever a process leaves behind.
  for (const auto& [count, plan] : plans_) (void)arcPlanDestroy(plan);
  if (buffer_ != nullptr) (void)arcMemFree(buffer_);
  if (comm_ != nullptr) (void)arcCommDestroy(comm_);
  (void)arcFinalize();
}

void AllReduced::begin(std::size_t sequences) {
  shard_.begin(sequences);
  cost_ = {};
}

std::span<const float> AllReduced::attention(std::size_t layer, std::span<const Row> rows,
                                             std::span<const float> norm) {
  shard_.attention(layer, rows, norm, {buffer_, norm.size()});
  return sum(norm.size());
}

std::span<const float> AllReduced::mlp(std::size_t layer, std::span<const float> norm) {
  shard_.mlp(layer, norm, {buffer_, norm.size()});
  return sum(norm.size());
}

std::span<const float> AllReduced::sum(std::size_t count) {
  const auto started = std::chrono::steady_clock::now();
  if (const arcPlan_t plan = plan_for(count)) {
    check(arcPlanStart(plan, nullptr), "arcPlanStart");
    check(arcPlanWait(plan, 0), "arcPlanWait");
  } else {
    check(arcAllReduce(buffer_, buffer_, count, arcFloat32, arcSum, comm_, nullptr),
          "arcAllReduce");
  }
  cost_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  ++cost_.calls;
  return {buffer_, count};
}

// Decoding sums the same count over and over: that gets a plan, made once and then started. A
// prompt's odd length does not. Every rank sees the same counts in the same order, so all of them
// decide alike.
arcPlan_t AllReduced::plan_for(std::size_t count) {
  constexpr unsigned kUsesBeforePlan = 32;
  if (const auto known = plans_.find(count); known != plans_.end()) return known->second;
  if (++uses_[count] < kUsesBeforePlan) return nullptr;
  arcPlan_t plan = nullptr;
  check(arcPlanCreateAllReduce(&plan, buffer_, buffer_, count, arcFloat32, arcSum, comm_),
        "arcPlanCreateAllReduce");
  plans_.emplace(count, plan);
  return plan;
}

}  // namespace lm
