// What it costs when many operations of one user expire together: of others' time, and of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

#include "daemon/comm/communicator_table.h"

namespace arcomm {
namespace {

constexpr int kMostAtOnce = 8;
constexpr std::uint64_t kSoonNs = 1'000'000'000, kLaterNs = 2'000'000'000;

class DeadlineSweep : public ::testing::Test {
 protected:
  std::vector<MemberId> form(std::uint32_t first_session, uid_t uid = 1000) {
    std::vector<Seat> seats(2);
    for (std::uint32_t seat = 0; seat < 2; ++seat) {
      seats[seat].session = {first_session + seat, 1};
      seats[seat].uid = uid;
    }
    return table_.form({}, 1, std::move(seats));
  }
  void call(MemberId id, std::uint64_t deadline_ns) {
    const Member& member = *table_.find(id);
    Operation& operation = operations_.emplace_back();
    operation.member = id;
    operation.rank = member.rank;
    operation.seat = member.seat;
    operation.seq = member.communicator->seats[member.seat].next_seq;
    operation.signature = Signature::whole(all_reduce_of(8));
    operation.admitted_ns = 100;
    operation.deadline_ns = deadline_ns;
    table_.arrive(operation);
  }
  void refuse(MemberId id, int times) {
    Member& member = *table_.find(id);
    const Failure told = make_failure(ErrorCode::FailedPrecondition, Reason::BadValue, 0, "no");
    for (int i = 0; i < times; ++i)
      table_.refuse(member, member.communicator->seats[member.seat].next_seq, told, 100);
  }
  int ended() {
    int count = 0;
    while (table_.finished().pop() != nullptr) ++count;
    return count;
  }

  int revoked_ = 0;
  CommunicatorTable table_{[this](Communicator&) { ++revoked_; }};
  std::deque<Operation> operations_;
};

// All tables full at default quotas, all of it expiring in one turn: it held up everybody for 327
// ms.
TEST_F(DeadlineSweep, ManyThatExpireTogetherAreTakenAFewInATurn) {
  constexpr int kCommunicators = 510, kRefused = 256;
  for (std::uint32_t i = 0; i < kCommunicators; ++i) {
    // Users of their own, whose shares of failed ones do not end it before.
    const std::vector<MemberId> members = form(0, 1000 + i);
    refuse(members[0], kRefused);
    call(members[0], kSoonNs);
  }
  const std::vector<MemberId> others = form(7, 1);
  call(others[0], kLaterNs);
  int turns = 0;
  std::int64_t slowest_us = 0;
  while (revoked_ < kCommunicators) {
    ASSERT_LT(turns, kCommunicators);
    const int before = revoked_;
    const auto since = std::chrono::steady_clock::now();
    table_.sweep_deadlines(kSoonNs + 1);
    const auto took = std::chrono::steady_clock::now() - since;
    slowest_us = std::max<std::int64_t>(
        slowest_us, std::chrono::duration_cast<std::chrono::microseconds>(took).count());
    ++turns;
    EXPECT_LE(revoked_ - before, kMostAtOnce);
    if (revoked_ < kCommunicators) {
      EXPECT_LE(table_.next_deadline_ns(), kSoonNs + 1) << "the rest would have to wait";
    }
    ended();
  }
  std::printf("%d communicators expire in %d turns, the slowest of %lld us\n", revoked_, turns,
              static_cast<long long>(slowest_us));
  RecordProperty("slowest turn (us)", static_cast<int>(slowest_us));
  table_.sweep_deadlines(kSoonNs + 1'000'000);
  EXPECT_EQ(table_.next_deadline_ns(), kLaterNs);
  EXPECT_TRUE(table_.find(others[0])->communicator->ready());
}

TEST_F(DeadlineSweep, WhatArrivesWhileASweepGoesOnKeepsItsDeadline) {
  for (std::uint32_t i = 0; i < 3 * kMostAtOnce; ++i) call(form(2 * i)[0], kSoonNs);
  const std::vector<MemberId> early = form(900);
  table_.sweep_deadlines(kSoonNs + 1);
  ASSERT_EQ(revoked_, kMostAtOnce);
  call(early[0], kLaterNs);
  for (int turn = 0; turn < 5; ++turn) table_.sweep_deadlines(kSoonNs + 2);
  EXPECT_EQ(revoked_, 3 * kMostAtOnce);
  EXPECT_EQ(table_.next_deadline_ns(), kLaterNs);
}

TEST_F(DeadlineSweep, ACommunicatorThatGoesWhileASweepGoesOnHidesNoOther) {
  std::vector<std::vector<MemberId>> all;
  for (std::uint32_t i = 0; i < 3 * kMostAtOnce; ++i) {
    all.push_back(form(2 * i));
    call(all.back()[0], kSoonNs);
  }
  table_.sweep_deadlines(kSoonNs + 1);
  ASSERT_EQ(revoked_, kMostAtOnce);
  for (const MemberId member : all[0]) table_.leave(member);
  for (int turn = 0; turn < 10; ++turn)
    table_.sweep_deadlines(kSoonNs + 1'000'000 * static_cast<std::uint64_t>(turn));
  EXPECT_EQ(revoked_, 3 * kMostAtOnce);
}

TEST_F(DeadlineSweep, TwoThatWaitForEachOtherAreFoundAmongFailedOnes) {
  const std::vector<MemberId> one = form(0), other = form(0);
  refuse(one[0], 200);
  refuse(other[1], 200);
  call(one[0], kSoonNs);
  call(other[1], kLaterNs);
  table_.sweep_deadlines(kSoonNs + 1);
  EXPECT_EQ(revoked_, 2);
  EXPECT_EQ(name_of(table_.find(one[0])->communicator->revoked.reason), name_of(Reason::Crossed));
  EXPECT_EQ(name_of(table_.find(other[0])->communicator->revoked.reason), name_of(Reason::Crossed));
}

// A user with many communicators piled up that many times what one of them may hold.
TEST_F(DeadlineSweep, FailedOperationsAreBoundedOverAllCommunicatorsOfAUser) {
  const std::vector<MemberId> of_another = form(900, 1001);
  refuse(of_another[0], 100);
  for (std::uint32_t i = 0; i < 20; ++i) refuse(form(2 * i)[0], 200);
  EXPECT_EQ(revoked_, 20 - static_cast<int>(FailedShare::kMost) / 200);
  EXPECT_TRUE(table_.find(of_another[0])->communicator->ready());
}

// Nor with many uids, as a user namespace gives them to one person.
TEST_F(DeadlineSweep, FailedOperationsAreBoundedOverAllUidsOfARange) {
  constexpr uid_t kMapped = 196'608;
  const std::vector<MemberId> of_another = form(900, 1001);
  refuse(of_another[0], 100);
  const std::vector<MemberId> of_a_neighbour = form(902, kMapped + 60'000);
  for (uid_t uid = 0; uid < 100; ++uid) {
    refuse(form(2 * uid, kMapped + uid)[0], 200);
    // Revoked, one has none.
    EXPECT_LE(200 * (uid + 1 - static_cast<uid_t>(revoked_)), FailedShare::kMostOfRange + 200);
  }
  EXPECT_EQ(revoked_, 100 - static_cast<int>(FailedShare::kMostOfRange) / 200);
  EXPECT_TRUE(table_.find(of_another[0])->communicator->ready());
  // Who has a few does not pay for them.
  refuse(of_a_neighbour[0], static_cast<int>(FailedShare::kFew));
  EXPECT_TRUE(table_.find(of_a_neighbour[0])->communicator->ready());
}

TEST_F(DeadlineSweep, WhatAllRanksHaveHeardOfIsNoLongerOnTheUsersShare) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<MemberId> members = form(0);
    refuse(members[0], 200);
    for (int i = 0; i < 200; ++i) call(members[1], kSoonNs);
    EXPECT_EQ(ended(), 200);
  }
  EXPECT_EQ(revoked_, 0);
}

}  // namespace
}  // namespace arcomm
