// Where a node is on one of the ways of a ring operation: chunks in the order in which they go,
// which both ends of the way know alike: round by round, step by step, and of each step the chunks
// of one shard's piece. Thread: one at a time.
#pragma once

#include <cstdint>

#include "daemon/plan/network/network_shards.h"
#include "daemon/plan/network/ring_schedule.h"
#include "daemon/plan/network/ring_tiers.h"

namespace arcomm {

// To the right: to the next node.
enum class RingWay : std::uint8_t {
  SumsOut,      // to the right
  SumsIn,       // from the left
  ResultsOut,   // to the right
  ResultsIn,    // from the left
  ResultsBack,  // to the left, where the all-gather goes both ways
  ResultsFore,  // from the right, likewise
};

class RingCursor {
 public:
  RingCursor() = default;
  // Both outlive it, or are not asked any more.
  RingCursor(RingWay way, const RingSchedule& schedule, const RingRounds& rounds)
      : way_(way), schedule_(&schedule), rounds_(&rounds) {
    const bool is_sum = way == RingWay::SumsOut || way == RingWay::SumsIn;
    first_step_ = is_sum ? 0 : schedule.reduce_steps();
    end_step_ = is_sum ? schedule.reduce_steps() : schedule.steps();
    step_ = first_step_;
    skip_empty();
  }

  bool at_end() const { return rounds_ == nullptr || round_ == rounds_->count(); }
  // Of its own: sums that have not been added to, results of this node.
  bool at_first_step() const { return step_ == first_step_; }
  bool at_last_step() const { return step_ + 1 == end_step_; }
  // Whether results that come in here go on to the next node of the same way.
  bool is_sent_on() const {
    if (at_last_step()) return false;
    const RingStep next = schedule_->step(step_ + 1);
    return way_ == RingWay::ResultsFore ? next.left.used : next.right.used;
  }
  std::uint64_t round() const { return round_; }
  std::uint64_t chunk() const { return chunk_; }
  std::uint32_t shard() const { return shard_of(schedule_->step(step_)); }
  ElementRange range() const {
    return chunk_of(rounds_->piece(shard(), round_), rounds_->chunk_elements(), chunk_);
  }
  void next() {
    ++chunk_;
    skip_empty();
  }

 private:
  bool is_used(const RingStep& step) const {
    switch (way_) {
      case RingWay::ResultsBack:
        return step.left.used;
      case RingWay::ResultsFore:
        return step.from_right.duty != RingDuty::None;
      default:
        return true;
    }
  }
  std::uint32_t shard_of(const RingStep& step) const {
    switch (way_) {
      case RingWay::SumsOut:
      case RingWay::ResultsOut:
        return step.right.shard;
      case RingWay::SumsIn:
      case RingWay::ResultsIn:
        return step.from_left.shard;
      case RingWay::ResultsBack:
        return step.left.shard;
      case RingWay::ResultsFore:
        return step.from_right.shard;
    }
    return 0;
  }
  // On to a chunk that there is.
  void skip_empty() {
    while (!at_end()) {
      if (step_ == end_step_) {
        step_ = first_step_;
        chunk_ = 0;
        ++round_;
        continue;
      }
      const RingStep step = schedule_->step(step_);
      if (is_used(step) &&
          chunk_ < chunks_in(rounds_->piece(shard_of(step), round_), rounds_->chunk_elements()))
        return;
      ++step_;
      chunk_ = 0;
    }
  }

  RingWay way_ = RingWay::SumsOut;
  const RingSchedule* schedule_ = nullptr;
  const RingRounds* rounds_ = nullptr;
  std::uint32_t first_step_ = 0, end_step_ = 0, step_ = 0;
  std::uint64_t round_ = 0, chunk_ = 0;
};

}  // namespace arcomm
