// Resident grids of all implementations with a communicator of two ranks: what is posted to them,
// and what is expected of them. Thread: the test's.
#pragma once

#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {

// A communicator of the grids' own; its mailboxes and scratch, by rank.
struct ResidentGroup {
  std::vector<Memory> mailboxes, scratch;
  std::vector<std::uint32_t> slots;
  std::uint32_t before = 0;  // number of the last operation that went before
};

class GpuResidentConformance : public GpuHardwareConformance {
 protected:
  static constexpr std::uint32_t kFirstPlan = 5;  // of rank 0; the next one is of rank 1

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuHardwareConformance::SetUp());
    if (!IsSkipped()) make(main_);
  }
  void TearDown() override {
    if (node_ != nullptr) {
      EXPECT_TRUE(node_->fill(false));
    }
    for (Rank rank = 0; rank < parts_.size(); ++rank) {
      if (grid(rank).pause(kPatience)) continue;
      // Whatever is destroyed now would wait for it, for ever.
      std::fprintf(stderr, "the resident grid of rank %u does not leave\n", rank);
      std::_Exit(1);
    }
    for (Rank rank = 0; rank < parts_.size(); ++rank)
      EXPECT_TRUE(grid(rank).clear_plan(kFirstPlan + rank));
    remove(main_);
    main_ = {};
    GpuHardwareConformance::TearDown();
  }

  ResidentGrid& grid(Rank rank) const { return *seat(rank).hardware->grid; }
  static DeviceMailbox* box(const ResidentGroup& group, Rank rank) {
    return reinterpret_cast<DeviceMailbox*>(group.mailboxes[rank].data());
  }
  static ResidentMember member(const ResidentGroup& group, Rank rank) {
    ResidentMember made{
        .mailbox = box(group, rank), .rank = rank, .ranks = kRanks, .number = group.before};
    for (Rank other = 0; other < kRanks; ++other) made.scratch[other] = group.scratch[other].data();
    return made;
  }
  void make(ResidentGroup& group) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      group.mailboxes.push_back(cleared(rank, kMailboxBytes));
      group.scratch.push_back(cleared(rank, seat(rank).hardware->resident_scratch_bytes));
    }
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (group.before != 0) post(group, rank, group.before);  // as those before have left it
      const auto slot = grid(rank).add_member(member(group, rank));
      ASSERT_TRUE(slot.ok()) << slot.error().to_string();
      group.slots.push_back(*slot);
      set_plan(group, rank, plan(rank));
    }
  }
  void remove(ResidentGroup& group) {
    for (Rank rank = 0; rank < group.slots.size(); ++rank)
      EXPECT_TRUE(grid(rank).remove_member(group.slots[rank]));
    group.slots.clear();
  }
  ResidentPlan plan(Rank rank, std::chrono::nanoseconds timeout = kPatience) const {
    return {.send = parts_[rank].send.data(),
            .recv = parts_[rank].recv.data(),
            .count = kCount,
            .timeout_ns = static_cast<std::uint64_t>(timeout.count())};
  }
  void set_plan(const ResidentGroup& group, Rank rank, const ResidentPlan& plan) {
    const Status set = grid(rank).set_plan(kFirstPlan + rank, group.slots[rank], plan);
    ASSERT_TRUE(set) << set.error().to_string();
  }
  void resume() {
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(grid(rank).resume());
  }
  void pause() {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(grid(rank).pause(kPatience));
      ASSERT_FALSE(grid(rank).running());
    }
  }
  void post(const ResidentGroup& group, Rank rank, const Doorbell& rung) {
    ASSERT_TRUE(node_->store(rank, &box(group, rank)->paths[0].doorbell, to_word(rung)));
  }
  void post(const ResidentGroup& group, Rank rank, std::uint32_t number) {
    post(group, rank, {.number = number, .plan = kFirstPlan + rank});
  }
  void post_captured(const ResidentGroup& group, Rank rank, std::uint32_t number, std::uint64_t n) {
    post(group, rank,
         {.number = number, .plan = kFirstPlan + rank, .identity = identity_of_captured(n)});
  }
  ResidentStatus status(const ResidentGroup& group, Rank rank) const {
    return grid(rank).status(group.slots[rank]);
  }
  void expect_done(const ResidentGroup& group, Rank rank, std::uint32_t number) {
    ASSERT_TRUE(eventually([&] { return status(group, rank).done == number; })) << "rank " << rank;
    EXPECT_EQ(in_mailbox(rank, box(group, rank)->paths[0].done), to_word(Done{.number = number}));
    EXPECT_EQ(status(group, rank).failed.code, 0);
  }
  void expect_done(const ResidentGroup& group, std::uint32_t number) {
    for (Rank rank = 0; rank < kRanks; ++rank)
      ASSERT_NO_FATAL_FAILURE(expect_done(group, rank, number));
  }
  void expect_pending_for_a_while(Rank rank) {
    const auto until = std::chrono::steady_clock::now() + kWhile;
    do {
      ASSERT_EQ(status(main_, rank).done, 0U);
      ASSERT_EQ(status(main_, rank).failed.code, 0);
    } while (std::chrono::steady_clock::now() < until);
    EXPECT_EQ(in_mailbox(rank, box(main_, rank)->paths[0].done), 0U);
  }
  // What is told to the owner and to the client, in the same words.
  void expect_failed(const ResidentGroup& group, Rank rank, ErrorCode code, Reason reason,
                     Rank culprit, std::uint32_t number) {
    ASSERT_TRUE(eventually([&] { return status(group, rank).failed.code != 0; }));
    const Done failed = status(group, rank).failed;
    EXPECT_EQ(name_of(error_code_from(failed.code)), name_of(code));
    EXPECT_EQ(name_of(reason_from(failed.reason)), name_of(reason));
    EXPECT_EQ(failed.culprit_rank, static_cast<std::int16_t>(culprit));
    EXPECT_EQ(failed.number, number);
    EXPECT_EQ(in_mailbox(rank, box(group, rank)->closed), to_word(failed));
  }

  ResidentGroup main_;
};

}  // namespace arcomm
