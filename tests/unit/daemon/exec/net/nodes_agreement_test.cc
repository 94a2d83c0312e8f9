// Operations of ranks on several nodes: they run when all nodes have asked for the same, and what
// differs or is refused is heard of on all of them.
#include <gtest/gtest.h>

#include "tests/unit/daemon/exec/net/nodes_fixture.h"

namespace arcomm::test {
namespace {

class NodesAgreementTest : public NodesTest {};

TEST_F(NodesAgreementTest, RanksOnThreeNodesAddUpWhatTheyHave) {
  start(3);
  const auto ranks = group({0, 1, 1, 2});
  fill(ranks, 1000);
  for (int round = 0; round < 20; ++round) {
    for (Client* rank : ranks) rank->call(1000);
    for (Client* rank : ranks) {
      EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
      const auto* result = rank->last_memory().as<float>(kBytes);
      EXPECT_EQ(result[0], 10.0F);
      EXPECT_EQ(result[999], 10.0F);
    }
  }
  EXPECT_EQ(inspect(1).communicators.front().operations_done, 20u);
  for (const FlightRecord& record : nodes_[1]->recorder().snapshot()) {
    EXPECT_GE(record.agreed_ns, record.admitted_ns);
    EXPECT_LE(record.agreed_ns, record.done_ns);
  }
}

TEST_F(NodesAgreementTest, ManyOperationsAheadOfASlowNodeWaitAndThenRunInOrder) {
  start(2);
  const auto ranks = group({0, 1});
  fill(ranks, 4);
  constexpr int kAhead = 50;  // more than are offered at once
  for (int i = 0; i < kAhead; ++i) ranks[0]->call(4);
  std::this_thread::sleep_for(milliseconds(30));
  for (int i = 0; i < kAhead; ++i) ranks[1]->call(4);
  for (Client* rank : ranks) {
    for (std::uint64_t i = 0; i < kAhead; ++i) {
      const auto completion = next(*rank);
      EXPECT_EQ(code_of(completion), ErrorCode::Ok) << text_of(completion);
      EXPECT_EQ(completion.ticket, 1000 + i);
    }
  }
}

TEST_F(NodesAgreementTest, CommunicatorsOfOneNodeGoOnBesideThem) {
  start(2);
  const auto ranks = group({0, 1});
  Client &one = client(0), &other = client(0);
  CommunicatorSpec spec;
  spec.unique_id.fill(std::byte{99});
  spec.ranks = {{one.id(), 0}, {other.id(), 1}};
  const auto formed = await<std::vector<MemberId>>(
      [&](auto done) { nodes_[0]->worker->form_communicator(spec, done); });
  ASSERT_TRUE(formed.ok());
  one.member = (*formed)[0];
  other.member = (*formed)[1];
  ranks[0]->call(8);
  for (int i = 0; i < 100; ++i) {
    one.call(8);
    other.call(8);
    EXPECT_EQ(code_of(next(one)), ErrorCode::Ok);
    EXPECT_EQ(code_of(next(other)), ErrorCode::Ok);
  }
  ranks[1]->call(8);
  EXPECT_EQ(code_of(next(*ranks[0])), ErrorCode::Ok);
  EXPECT_EQ(code_of(next(*ranks[1])), ErrorCode::Ok);
}

TEST_F(NodesAgreementTest, DifferentCountsAreNamedWithRanksAndNodesOnAllSides) {
  start(3);
  const auto ranks = group({0, 1, 2});
  ranks[0]->call(7);
  ranks[1]->call(8);
  // The third one need not call to make the others hear of it.
  for (const std::size_t rank : {0u, 1u}) {
    const auto completion = next(*ranks[rank]);
    expect(completion, Reason::Mismatch, "count ");
    EXPECT_NE(text_of(completion).find("rank 0 (node-a)"), std::string::npos);
    EXPECT_NE(text_of(completion).find("rank 1 (node-b)"), std::string::npos);
  }
  ranks[2]->call(7);
  expect(next(*ranks[2]), Reason::Mismatch, "rank 1 (node-b)");
  // It ended that operation and nothing else.
  for (Client* rank : ranks) rank->call(7);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesAgreementTest, NoElementsAreComparedLikeAnyOther) {
  start(2);
  const auto ranks = group({0, 1});
  ranks[0]->call(0);
  ranks[1]->call(5);
  for (Client* rank : ranks) expect(next(*rank), Reason::Mismatch, "count ");
  for (Client* rank : ranks) rank->call(0);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesAgreementTest, AMismatchWithinANodeIsHeardOfOnTheOther) {
  start(2);
  const auto ranks = group({0, 0, 1});
  ranks[0]->call(5);
  ranks[1]->call(6);
  ranks[2]->call(5);
  for (Client* rank : ranks) expect(next(*rank), Reason::Mismatch, "rank 1");
  for (Client* rank : ranks) rank->call(5);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesAgreementTest, ARefusedRequestIsHeardOfOnAllNodesBeforeAndAfterTheyCall) {
  start(3);
  const auto ranks = group({0, 1, 2});
  ranks[0]->call(5);
  auto wrong = ranks[1]->request(5);
  wrong.send_buffer = (std::uint64_t{77} << 32) | 12345;
  ranks[1]->submit(wrong);
  EXPECT_EQ(reason_of(next(*ranks[1])), Reason::UnknownHandle);
  expect(next(*ranks[0]), Reason::UnknownHandle, "node-b: refused on rank 1");
  std::this_thread::sleep_for(milliseconds(20));
  ranks[2]->call(5);
  expect(next(*ranks[2]), Reason::UnknownHandle, "rank 1");
  for (Client* rank : ranks) rank->call(5);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesAgreementTest, ACommunicatorNeedsItsLinksAndItsStaging) {
  start(2);
  nodes_.push_back(std::make_unique<TestNode>(2));  // nobody knows it
  Client &a = client(0), &b = client(1), &c = client(2);
  const auto unlinked = form_on(0, {&a, &b, &c}, {0, 1, 2}, 7);
  ASSERT_FALSE(unlinked.ok());
  EXPECT_NE(unlinked.error().message.find("no link to node node-c"), std::string::npos);

  nodes_[0]->executor.load()->refuses_to_form = true;
  const auto unstaged = form_on(0, {&a, &b}, {0, 1}, 8);
  ASSERT_FALSE(unstaged.ok());
  EXPECT_NE(unstaged.error().message.find("staging"), std::string::npos);
  nodes_[0]->executor.load()->refuses_to_form = false;
  form({&a, &b}, {0, 1}, 9);
  a.call(5);
  b.call(5);
  EXPECT_EQ(code_of(next(a)), ErrorCode::Ok);
  EXPECT_EQ(code_of(next(b)), ErrorCode::Ok);
  // What came before it was there was kept for it.
  EXPECT_TRUE(until([&] { return nodes_[1]->executor.load()->received == 1; }));
}

}  // namespace
}  // namespace arcomm::test
