// A resident grid of host memory, beside those of the node's other GPUs. Thread: the worker's.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "tests/unit/daemon/exec/worker/fake_node.h"

namespace arcomm::test {

// A member of a grid. Outside FakeGrid: clang 14 refuses std::optional of a nested class with
// default member initializers.
struct FakeMember {
  ResidentMember member;
  ResidentStatus status;
  std::uint64_t since_ns = 0;  // its open operation was seen
  Done aborted;
};

// Takes its operations whenever it is looked at.
class FakeGrid final : public ResidentGrid {
 public:
  explicit FakeGrid(FakeNode& node) : node_(node) { node_.grids.push_back(this); }
  ~FakeGrid() override {
    std::erase(node_.grids, this);
    if (running_) --node_.running_grids;
  }

  Status resume() override {
    if (!running_) ++node_.running_grids, ++node_.resumes;
    running_ = true;
    return {};
  }
  Status pause(std::chrono::nanoseconds) override {
    if (running_) --node_.running_grids, ++node_.pauses;
    running_ = false;
    return {};
  }
  bool running() const override { return running_; }
  Result<std::uint32_t> add_member(const ResidentMember& member) override {
    for (std::uint32_t slot = 0; slot < kResidentMembers; ++slot) {
      if (slots_[slot]) continue;
      slots_[slot].emplace().member = member;
      return slot;
    }
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "no slot is free");
  }
  Status set_plan(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) override {
    plans_[index] = {slot, plan};
    return {};
  }
  Status clear_plan(std::uint32_t index) override {
    plans_.erase(index);
    return {};
  }
  Status abort_member(std::uint32_t slot, Done why) override {
    ++node_.aborts;
    slots_[slot]->aborted = why;
    return {};
  }
  ResidentStatus status(std::uint32_t slot) const override {
    auto& self = const_cast<FakeGrid&>(*this);
    if (running_) self.look(slot);
    return slots_[slot]->status;
  }
  Result<bool> has_begun(std::uint32_t slot, const ResidentPlan& plan) const override {
    EXPECT_FALSE(running_);
    const ResidentPlan* begun = const_cast<FakeGrid&>(*this).open(slot);
    return begun != nullptr && begun->send == plan.send && begun->recv == plan.recv;
  }
  Status remove_member(std::uint32_t slot) override {
    EXPECT_FALSE(running_);
    slots_[slot].reset();
    return {};
  }

 private:
  // The plan of the slot's open operation, if there is one.
  const ResidentPlan* open(std::uint32_t index) {
    const FakeMember& slot = *slots_[index];
    const Doorbell doorbell = doorbell_from(load_word(slot.member.mailbox->paths[0].doorbell));
    if (doorbell.number != slot.status.done + 1 || slot.status.failed.code != 0) return nullptr;
    const auto plan = plans_.find(doorbell.plan);
    return plan != plans_.end() && plan->second.first == index ? &plan->second.second : nullptr;
  }
  void look(std::uint32_t index) {
    FakeMember& slot = *slots_[index];
    if (slot.status.failed.code != 0) return;
    if (slot.aborted.code != 0) {
      slot.status.failed = slot.aborted;
      return;
    }
    const ResidentPlan* plan = open(index);
    if (plan == nullptr) return;
    if (slot.since_ns == 0) slot.since_ns = now_ns();
    std::vector<std::pair<FakeGrid*, std::uint32_t>> peers(slot.member.ranks, {nullptr, 0});
    for (FakeGrid* grid : node_.grids) {
      for (std::uint32_t other = 0; other < kResidentMembers; ++other) {
        if (!grid->slots_[other] || !grid->running_) continue;
        FakeMember& there = *grid->slots_[other];
        if (there.member.scratch[0] != slot.member.scratch[0]) continue;
        if (grid->open(other) != nullptr) peers[there.member.rank] = {grid, other};
      }
    }
    std::vector<const float*> in;
    std::vector<float*> out;
    for (std::uint32_t rank = 0; rank < peers.size(); ++rank) {
      auto [grid, other] = peers[rank];
      if (grid == nullptr) {
        if (now_ns() - slot.since_ns > plan->timeout_ns) {
          slot.status.failed = {.number = slot.status.done + 1,
                                .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                                .reason = static_cast<std::uint8_t>(Reason::Timeout),
                                .culprit_rank = static_cast<std::int16_t>(rank)};
        }
        return;
      }
      const ResidentPlan& theirs = *grid->open(other);
      if (theirs.count != plan->count) {
        slot.status.failed = {.number = slot.status.done + 1,
                              .code = static_cast<std::uint8_t>(ErrorCode::FailedPrecondition),
                              .reason = static_cast<std::uint8_t>(Reason::Mismatch),
                              .culprit_rank = static_cast<std::int16_t>(rank)};
        return;
      }
      in.push_back(static_cast<const float*>(theirs.send));
      out.push_back(static_cast<float*>(theirs.recv));
    }
    sum_floats(in, out, plan->count);
    for (auto [grid, other] : peers) {
      FakeMember& there = *grid->slots_[other];
      ++there.status.done;
      there.since_ns = 0;
      store_word(there.member.mailbox->paths[0].done, to_word(Done{.number = there.status.done}));
    }
  }

  FakeNode& node_;
  bool running_ = false;
  std::array<std::optional<FakeMember>, kResidentMembers> slots_;
  std::map<std::uint32_t, std::pair<std::uint32_t, ResidentPlan>> plans_;
};

}  // namespace arcomm::test
