// What it costs to find, between nodes, that ranks wait for each other on two communicators: what
// waits, and not what there is.
#include "daemon/comm/crossing.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/comm/communicator_table.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kOverNs = 1'000'000'000;
constexpr std::array<std::uint32_t, 4> kNodeOfRank = {0, 1, 0, 1};  // ranks 0 and 2 are here

// What another node has said, and how often anybody has asked.
class CountedElsewhere final : public Elsewhere {
 public:
  CountedElsewhere(std::uint64_t& asked, bool& waits) : asked_(asked), waits_(waits) {}
  std::string_view node_name(Rank) const override { return "other"; }
  std::uint64_t node_id(Rank rank) const override {
    ++asked_;
    return kNodeOfRank[static_cast<std::size_t>(rank)];
  }
  bool has_called(Rank rank, std::uint64_t seq) const override {
    ++asked_;
    return waits_ && rank == 1 && seq == 0;
  }
  std::optional<std::uint64_t> waits_at(Rank rank) const override {
    ++asked_;
    return waits_ && rank == 1 ? std::optional<std::uint64_t>(0) : std::nullopt;
  }
  bool anybody_waits() const override { return waits_; }
  pid_t pid(Rank rank) const override { return 20 + rank; }

 private:
  std::uint64_t& asked_;
  const bool& waits_;
};

class CrossingBetweenNodes : public ::testing::Test {
 protected:
  struct Formed {
    std::vector<MemberId> members;
    bool waits_elsewhere = false;  // rank 1
  };
  Formed& form() {
    Formed& formed = formed_.emplace_back();
    std::vector<Seat> seats(2);
    for (std::uint32_t seat = 0; seat < 2; ++seat) {
      seats[seat].session = {seat, 1};
      seats[seat].pid = static_cast<pid_t>(10 + seat);
      seats[seat].uid = 1000;
    }
    formed.members = table_.form({}, 1, World::create(kNodeOfRank, 0).value(), std::move(seats));
    of(formed).elsewhere = std::make_unique<CountedElsewhere>(asked_, formed.waits_elsewhere);
    return formed;
  }
  Communicator& of(const Formed& formed) { return *table_.find(formed.members[0])->communicator; }
  // By rank 0, the first of our two.
  void call(const Formed& formed, std::uint64_t deadline_ns) {
    Operation& operation = operations_.emplace_back();
    operation.member = formed.members[0];
    operation.rank = 0;
    operation.seat = 0;
    operation.seq = of(formed).seats[0].next_seq;
    operation.signature = Signature::whole(all_reduce_of(8));
    operation.admitted_ns = 100;
    operation.deadline_ns = deadline_ns;
    table_.arrive(operation);
  }
  void hear_of_waiting(Formed& formed) {
    formed.waits_elsewhere = true;
    table_.note_waiting_elsewhere(of(formed));
  }

  std::uint64_t asked_ = 0;
  int revoked_ = 0;
  std::deque<Formed> formed_;
  std::deque<Operation> operations_;
  CommunicatorTable table_{[this](Communicator&) { ++revoked_; }};
};

TEST_F(CrossingBetweenNodes, IsFoundWithoutALookAtThoseThatAreIdle) {
  for (int i = 0; i < 1000; ++i) form();
  Formed& one = form();
  Formed& other = form();
  for (int i = 0; i < 1000; ++i) form();
  call(one, kOverNs);
  hear_of_waiting(other);
  asked_ = 0;
  table_.sweep_deadlines(kOverNs + 1);
  EXPECT_EQ(revoked_, 2);
  EXPECT_EQ(name_of(of(one).revoked.reason), name_of(Reason::Crossed))
      << of(one).revoked.text.data();
  EXPECT_EQ(name_of(of(other).revoked.reason), name_of(Reason::Crossed));
  EXPECT_LT(asked_, 100u) << "with 2000 idle ones";
}

TEST_F(CrossingBetweenNodes, OnesThatWaitForOthersAreAskedThatAlone) {
  constexpr int kWaiting = 100;
  for (int i = 0; i < kWaiting; ++i) call(form(), 10 * kOverNs);
  call(form(), kOverNs);
  asked_ = 0;
  table_.sweep_deadlines(kOverNs + 1);
  EXPECT_EQ(revoked_, 1);
  EXPECT_LT(asked_, 10u * kWaiting) << "ranks were compared with ranks";
}

TEST_F(CrossingBetweenNodes, WhatWaitsNoMoreElsewhereIsForgotten) {
  Formed& one = form();
  Formed& other = form();
  hear_of_waiting(other);
  other.waits_elsewhere = false;
  call(one, kOverNs);
  table_.sweep_deadlines(kOverNs + 1);
  EXPECT_EQ(name_of(of(one).revoked.reason), name_of(Reason::Timeout));
  EXPECT_FALSE(of(other).listed);
  EXPECT_TRUE(of(other).ready());
}

}  // namespace
}  // namespace arcomm
