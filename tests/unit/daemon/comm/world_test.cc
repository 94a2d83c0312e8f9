// Places, seats, and what a communicator that spans nodes waits for before it runs anything.
#include "daemon/comm/world.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/comm/communicator_table.h"

namespace arcomm {
namespace {

constexpr std::array<std::uint32_t, 5> kNodes = {1, 0, 1, 1, 0};  // by global rank

TEST(World, OnOneNodeGlobalAndLocalRanksAreTheSame) {
  const World world = World::of_one_node(3);
  EXPECT_EQ(world.size(), 3u);
  EXPECT_TRUE(world.is_one_node());
  EXPECT_EQ(world.seated(), (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(world.place(2), (Place{.node = 0, .global = 2, .local = 2}));
}

TEST(World, CountsLocalRanksNodeByNodeInTheGlobalOrder) {
  const World here = World::create(kNodes, 1).value();
  EXPECT_EQ(here.nodes(), 2u);
  EXPECT_FALSE(here.is_one_node());
  EXPECT_EQ(here.seated(), (std::vector<Rank>{0, 2, 3}));
  EXPECT_EQ(here.place(3), (Place{.node = 1, .global = 3, .local = 2}));
  EXPECT_EQ(here.place(4), (Place{.node = 0, .global = 4, .local = 1}));
  EXPECT_TRUE(here.is_here(0));
  EXPECT_FALSE(here.is_here(1));
  const World there = World::create(kNodes, 0).value();
  EXPECT_EQ(there.seated(), (std::vector<Rank>{1, 4}));
  EXPECT_EQ(there.place(3), here.place(3)) << "the same on all nodes";
}

// Another node's numbers: one of 4 billion took 16 GB before anything was counted.
TEST(World, NodesBeyondTheRanksOrLeftOutAreRefusedByNumber) {
  const auto refused = [](std::vector<std::uint32_t> nodes, std::uint32_t here) {
    const Result<World> world = World::create(nodes, here);
    EXPECT_FALSE(world.ok());
    return world ? std::string() : world.error().message;
  };
  EXPECT_NE(refused({0, 4'000'000'000}, 0).find("rank 1 is on node 4000000000"), std::string::npos);
  EXPECT_NE(refused({0, 2, 2}, 0).find("node 1 of 3 has no rank"), std::string::npos);
  EXPECT_NE(refused({0, 1}, 2).find("node 2 of 2"), std::string::npos);
  EXPECT_FALSE(refused({}, 0).empty());
}

class TwoNodes : public ::testing::Test {
 protected:
  TwoNodes() {
    members_ = table_.form({}, 1, World::create(kNodes, 1).value(), std::vector<Seat>(3));
  }
  Communicator& communicator() { return *table_.find(members_[0])->communicator; }
  void arrive(std::size_t seat, std::uint64_t seq, std::uint64_t deadline_ns = 1'000'000) {
    const Member& member = *table_.find(members_[seat]);
    Operation& operation = operations_.at(used_++);
    operation.member = members_[seat];
    operation.rank = member.rank;
    operation.seat = member.seat;
    operation.seq = seq;
    operation.signature = Signature::whole(all_reduce_of(8));
    operation.admitted_ns = 100;
    operation.deadline_ns = deadline_ns;
    table_.arrive(operation);
  }

  CommunicatorTable table_{[](Communicator&) {}};
  std::vector<MemberId> members_;
  std::array<Operation, 12> operations_;
  std::size_t used_ = 0;
};

TEST_F(TwoNodes, SeatsHaveTheGlobalRanksOfThisNode) {
  EXPECT_EQ(communicator().ranks(), 5);
  ASSERT_EQ(communicator().seats.size(), 3u);
  EXPECT_EQ(communicator().seats[1].rank, 2);
  EXPECT_EQ(communicator().seats[1].index, 1u);
  EXPECT_EQ(&communicator().seat(3), &communicator().seats[2]);
  EXPECT_EQ(table_.find(members_[2])->rank, 3);
  EXPECT_EQ(table_.find(members_[2])->seat, 2u);
}

TEST_F(TwoNodes, WhatAllSeatsHaveCalledRunsOnlyOnceTheNodesAgree) {
  for (const std::size_t seat : {2u, 0u, 1u}) arrive(seat, 0);
  EXPECT_EQ(communicator().board.head()->state, Arrival::State::Matched);
  EXPECT_EQ(table_.next_ready(), nullptr);
  for (const std::size_t seat : {0u, 1u, 2u}) arrive(seat, 1);
  table_.agree(communicator(), 1);
  EXPECT_EQ(table_.next_ready(), nullptr) << "not before the one before it";
  table_.agree(communicator(), 0);
  EXPECT_EQ(table_.next_ready(), &communicator());
  table_.completed(communicator(), {});
  EXPECT_EQ(table_.next_ready(), &communicator());
  table_.completed(communicator(), {});
  EXPECT_EQ(communicator().operations_done, 2u);
}

TEST_F(TwoNodes, AnOperationInPartsEndsWithItsLastPart) {
  for (const std::size_t seat : {0u, 1u, 2u}) arrive(seat, 0);
  table_.agree(communicator(), 0);
  ASSERT_EQ(table_.next_ready(), &communicator());
  table_.run_in_parts(communicator(), 2);
  table_.completed(communicator(), {});
  EXPECT_TRUE(table_.finished().empty());
  EXPECT_TRUE(communicator().running());
  table_.completed(communicator(), {});
  EXPECT_FALSE(communicator().running());
  EXPECT_EQ(communicator().operations_done, 1u);
}

TEST_F(TwoNodes, WhatFailsAPartIsToldThoughTheCommunicatorEndsForItMeanwhile) {
  for (const std::size_t seat : {0u, 1u, 2u}) arrive(seat, 0);
  table_.agree(communicator(), 0);
  ASSERT_EQ(table_.next_ready(), &communicator());
  table_.run_in_parts(communicator(), 2);
  table_.completed(communicator(),
                   make_failure(ErrorCode::Unavailable, Reason::RemoteDied, 1, "rail"));
  const Failure stop = make_failure(ErrorCode::Aborted, Reason::RemoteDied, 1, "node 0 is gone");
  table_.revoke(communicator(), stop);
  EXPECT_TRUE(table_.finished().empty()) << "a part still runs";
  table_.completed(communicator(), stop);
  int ended = 0;
  while (const Operation* operation = table_.finished().pop()) {
    EXPECT_EQ(operation->outcome.message(), "rail");
    ++ended;
  }
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(communicator().operations_failed, 1u);
}

TEST_F(TwoNodes, NodesThatDoNotAgreeInTimeAreSaidToBeTheReason) {
  for (const std::size_t seat : {0u, 1u, 2u}) arrive(seat, 0);
  table_.sweep_deadlines(2'000'000);
  const Operation* ended = table_.finished().pop();
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->outcome.reason, Reason::Timeout);
  EXPECT_EQ(ended->outcome.message(), "seq 0: other nodes did not agree to it within 1 ms");
  table_.agree(communicator(), 0);  // too late, and for nothing
  EXPECT_EQ(table_.next_ready(), nullptr);
}

TEST_F(TwoNodes, ARankThatDoesNotCallIsNamedByItsGlobalRank) {
  for (const std::size_t seat : {0u, 2u}) arrive(seat, 0);
  table_.sweep_deadlines(2'000'000);
  const Operation* ended = table_.finished().pop();
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->outcome.culprit, 2);
}

}  // namespace
}  // namespace arcomm
