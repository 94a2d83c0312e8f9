// What one node does in a ring of nodes, step by step. A step names whole shards (network_shards.h;
// in a large operation one round's piece of each, ring_tiers.h), which travel chunk by chunk: a
// chunk may go on as soon as the step before has it, whatever others are at.
//
// Reduce-scatter, nodes - 1 steps: shard s sets out from node s + 1 and comes home to s by way of
// s + 2, s + 3, ...: its elements are added up in this order, the node that has them last being
// their owner, who rounds. All-gather: nodes - 1 steps to the right; or both ways at once, in
// ceil((nodes - 1) / 2) steps. Pure; any thread; allocates nothing.
#pragma once

#include <cstdint>

namespace arcomm {

enum class RingPhase : std::uint8_t { ReduceScatter, AllGather };

// What to do with what comes.
enum class RingDuty : std::uint8_t {
  None,
  Combine,  // with this node's partial result, in this order; it goes on as it is
  Finish,   // the same, to the result: this is its owner
  Store,    // the result
};

struct RingSend {
  bool used = false;
  std::uint32_t to = 0;
  std::uint32_t shard = 0;
};
struct RingReceive {
  RingDuty duty = RingDuty::None;
  std::uint32_t from = 0;
  std::uint32_t shard = 0;
};

// One step of one node: over the ring's right-hand way (to the next node, from the one before), and
// over the left-hand one, where it is used.
struct RingStep {
  RingPhase phase = RingPhase::ReduceScatter;
  RingSend right, left;                 // to the next node; to the one before
  RingReceive from_left, from_right{};  // from the node before; from the next
};

class RingSchedule {
 public:
  // Precondition: here < nodes.
  constexpr RingSchedule(std::uint32_t nodes, std::uint32_t here, bool bidirectional)
      : nodes_(nodes), here_(here), bidirectional_(bidirectional) {}

  constexpr std::uint32_t reduce_steps() const { return nodes_ - 1; }
  constexpr std::uint32_t gather_steps() const {
    return bidirectional_ ? nodes_ / 2 : nodes_ - 1;  // nodes / 2 is ceil((nodes - 1) / 2)
  }
  constexpr std::uint32_t steps() const { return reduce_steps() + gather_steps(); }
  constexpr std::uint32_t right() const { return after(1); }
  constexpr std::uint32_t left() const { return before(1); }

  // Precondition: index < steps().
  constexpr RingStep step(std::uint32_t index) const {
    return index < reduce_steps() ? reduce_step(index) : gather_step(index - reduce_steps());
  }

 private:
  constexpr std::uint32_t after(std::uint32_t hops) const {
    return static_cast<std::uint32_t>((std::uint64_t{here_} + hops) % nodes_);
  }
  constexpr std::uint32_t before(std::uint32_t hops) const {
    return static_cast<std::uint32_t>((std::uint64_t{here_} + nodes_ - hops) % nodes_);
  }

  constexpr RingStep reduce_step(std::uint32_t index) const {
    RingStep step;
    step.right = {.used = true, .to = right(), .shard = before(1 + index)};
    step.from_left = {.duty = index + 1 == reduce_steps() ? RingDuty::Finish : RingDuty::Combine,
                      .from = left(),
                      .shard = before(index + 2)};
    return step;
  }

  constexpr RingStep gather_step(std::uint32_t index) const {
    RingStep step;
    step.phase = RingPhase::AllGather;
    step.right = {.used = true, .to = right(), .shard = before(index)};
    step.from_left = {.duty = RingDuty::Store, .from = left(), .shard = before(index + 1)};
    if (!bidirectional_) return step;
    // Shards that come from the left: ceil((nodes - 1) / 2); from the right: what is left.
    if (index < nodes_ - 1 - gather_steps()) {
      step.left = {.used = true, .to = left(), .shard = after(index)};
      step.from_right = {.duty = RingDuty::Store, .from = right(), .shard = after(index + 1)};
    }
    return step;
  }

  std::uint32_t nodes_, here_;
  bool bidirectional_;
};

}  // namespace arcomm
