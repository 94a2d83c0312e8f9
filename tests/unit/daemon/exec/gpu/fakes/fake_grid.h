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
#include "tests/unit/daemon/exec/gpu/fakes/fake_node.h"

namespace arcomm::test {

// What a member has handed to its peers: they need nothing else of it.
struct FakePush {
  std::uint32_t number = 0;  // 0: nothing yet
  std::uint32_t identity = kNoIdentity;
  ResidentPlan plan;
  std::vector<float> data;
};

// A member of a grid. Outside FakeGrid: clang 14 refuses std::optional of a nested class with
// default member initializers.
struct FakeMember {
  ResidentMember member;
  std::uint64_t owner = 0;  // none that came before on this grid has had it
  ResidentStatus status;
  std::uint32_t number = 0;  // of the last operation that was begun
  std::uint32_t identity = kNoIdentity;
  std::optional<ResidentPlan> open;  // that one's, until it has ended
  std::uint64_t since_ns = 0;        // its doorbell was seen
  FakePush pushes[2];                // by number modulo 2: no peer is further behind
  Done aborted;
};

// Takes its operations whenever it is looked at, once it has started.
class FakeGrid final : public ResidentGrid {
 public:
  explicit FakeGrid(FakeNode& node) : node_(node) { node_.grids.push_back(this); }
  ~FakeGrid() override {
    std::erase(node_.grids, this);
    if (running_) --node_.running_grids;
  }

  Status resume() override {
    if (running_) return {};
    if (taken_back_ && node_.full)
      return error(ErrorCode::Unavailable, Reason::None,
                   "the launch before has not come to its end");
    taken_back_ = false;
    ++node_.running_grids, ++node_.resumes;
    running_ = true;
    return {};
  }
  Status pause(std::chrono::nanoseconds) override {
    advance(node_);  // as it has run until now
    if (!running_) return {};
    if (node_.stuck) return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "it has not left");
    --node_.running_grids, ++node_.pauses;
    taken_back_ = !started();
    started_ = false;
    running_ = false;
    return {};
  }
  bool running() const override { return running_; }
  bool is_idle() const override { return !running_ && !(taken_back_ && node_.full); }
  bool started() const override {
    started_ = running_ && (started_ || !node_.full);
    return started_;
  }
  Result<std::uint32_t> add_member(const ResidentMember& member) override {
    for (std::uint32_t slot = 0; slot < kResidentMembers; ++slot) {
      if (slots_[slot]) continue;
      FakeMember& added = slots_[slot].emplace();
      added.member = member;
      added.owner = ++last_owner_;
      added.number = added.status.done = member.number;
      return slot;
    }
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "no slot is free");
  }
  Status set_plan(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) override {
    ARC_RETURN_IF_ERROR(can_be_resident(index, slot, plan));
    if (!slots_[slot]) return error(ErrorCode::InvalidArgument, Reason::BadValue, "nobody's slot");
    plans_[index] = {slots_[slot]->owner, plan};
    plans_[index].second.signature = resident_signature(plan);
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
    advance(node_);
    return slots_[slot]->status;
  }
  Result<bool> has_begun(std::uint32_t slot, const ResidentPlan& plan) const override {
    EXPECT_FALSE(running_);
    const std::optional<ResidentPlan>& open = slots_[slot]->open;
    return open && open->send == plan.send && open->recv == plan.recv;
  }
  Status remove_member(std::uint32_t slot) override {
    EXPECT_FALSE(running_);
    slots_[slot].reset();
    return {};
  }

 private:
  // What the node's grids would do by themselves.
  static void advance(FakeNode& node) {
    bool any = true;
    while (any) {
      any = false;
      for (FakeGrid* grid : node.grids) {
        if (!grid->started()) continue;
        for (auto& slot : grid->slots_) {
          if (slot && slot->status.failed.code == 0) any |= grid->look(*slot);
        }
      }
    }
  }
  // True: something has ended or begun.
  bool look(FakeMember& self) {
    if (self.aborted.code != 0) return fail(self, self.aborted);
    if (self.open) return collect(self);
    const Doorbell doorbell = doorbell_from(load_word(self.member.mailbox->paths[0].doorbell));
    if (doorbell.number == self.number) return false;
    const auto plan = plans_.find(doorbell.plan);
    const bool known = plan != plans_.end() && plan->second.first == self.owner;
    if (!known || doorbell.number != self.number + 1) {
      return fail(self, doorbell.number, ErrorCode::Aborted,
                  known ? Reason::Quarantined : Reason::UnknownHandle, self.member.rank);
    }
    self.number = doorbell.number;
    self.identity = doorbell.identity;
    self.open = plan->second.second;
    self.since_ns = now_ns();
    const auto* send = static_cast<const float*>(self.open->send);
    self.pushes[self.number % 2] = {
        self.number, self.identity, *self.open, {send, send + floats(*self.open)}};
    return true;
  }
  bool collect(FakeMember& self) {
    std::vector<const float*> in;
    for (std::uint32_t rank = 0; rank < self.member.ranks; ++rank) {
      const FakeMember* peer = peer_of(self, rank);
      const FakePush* push = peer == nullptr ? nullptr : &peer->pushes[self.number % 2];
      if (push == nullptr || push->number != self.number) {
        return now_ns() - self.since_ns > self.open->timeout_ns &&
               fail(self, self.number, ErrorCode::DeadlineExceeded, Reason::Timeout, rank);
      }
      if (push->plan.signature != self.open->signature)
        return fail(self, self.number, ErrorCode::FailedPrecondition, Reason::Mismatch, rank);
      if (push->identity != self.identity)
        return fail(self, self.number, ErrorCode::FailedPrecondition, Reason::Reordered, rank);
      in.push_back(push->data.data());
    }
    sum_floats(in, {static_cast<float*>(self.open->recv)}, floats(*self.open));
    self.open.reset();
    self.status.done = self.number;
    store_word(self.member.mailbox->paths[0].done, to_word(Done{.number = self.number}));
    return true;
  }
  const FakeMember* peer_of(const FakeMember& self, std::uint32_t rank) const {
    for (const FakeGrid* grid : node_.grids) {
      for (const auto& slot : grid->slots_) {
        if (slot && slot->member.scratch[0] == self.member.scratch[0] && slot->member.rank == rank)
          return &*slot;
      }
    }
    return nullptr;
  }
  // Bytes of another type are floats here too: nobody looks at those sums.
  static std::uint64_t floats(const ResidentPlan& plan) {
    return plan.count * size_of(plan.dtype) / sizeof(float);
  }
  static bool fail(FakeMember& self, std::uint32_t number, ErrorCode code, Reason reason,
                   std::uint32_t culprit) {
    return fail(self, {.number = number,
                       .code = static_cast<std::uint8_t>(code),
                       .reason = static_cast<std::uint8_t>(reason),
                       .culprit_rank = static_cast<std::int16_t>(culprit)});
  }
  static bool fail(FakeMember& self, Done why) {
    self.status.failed = why;
    self.open.reset();
    store_word(self.member.mailbox->closed, to_word(why));
    return true;
  }

  FakeNode& node_;
  bool running_ = false;
  mutable bool started_ = false;  // it had room when it was first looked at, or later
  bool taken_back_ = false;       // the last launch, before it had started
  std::uint64_t last_owner_ = 0;
  std::array<std::optional<FakeMember>, kResidentMembers> slots_;
  std::map<std::uint32_t, std::pair<std::uint64_t, ResidentPlan>> plans_;  // and their owners
};

}  // namespace arcomm::test
