// What ends between nodes: aborts, deaths, leaves, lost links, deadlines. All nodes hear of it,
// with the rank and the node.
#include <gtest/gtest.h>

#include "tests/unit/daemon/exec/net/nodes_fixture.h"

namespace arcomm::test {
namespace {

class NodesFailureTest : public NodesTest {
 protected:
  Result<void> abort(std::size_t node, Client& client, const std::string& why) {
    return await<void>([&](auto done) {
      nodes_[node]->worker->abort_communicator(client.id(), client.member, why, done);
    });
  }
  Result<void> close(std::size_t node, Client& client, Reason reason) {
    return await<void>([&](auto done) {
      nodes_[node]->worker->close_session(client.id(), reason, "killed", done);
    });
  }
  static ring::WorkRequest in_time(Client& client, milliseconds timeout) {
    ring::WorkRequest request = client.request(5);
    request.timeout_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count());
    return request;
  }
};

TEST_F(NodesFailureTest, AnAbortEndsItOnAllNodes) {
  start(3);
  const auto ranks = group({0, 1, 2});
  ranks[0]->call(5);
  ranks[2]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1) && has_taken(2, 2, 1));
  EXPECT_TRUE(abort(1, *ranks[1], "enough").ok());
  for (const std::size_t rank : {0u, 2u}) {
    const auto completion = next(*ranks[rank]);
    expect(completion, Reason::RemoteAborted, "rank 1 aborted the communicator: enough");
    EXPECT_NE(text_of(completion).find("node-b"), std::string::npos);
    EXPECT_EQ(completion.culprit_rank, 1);
    ranks[rank]->call(5);
    expect(next(*ranks[rank]), Reason::Revoked, "rank 1 aborted");
  }
}

TEST_F(NodesFailureTest, ADeadClientIsNamedOnAllNodes) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ranks[0]->call(5);
  ranks[1]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1) && has_taken(1, 1, 1));
  EXPECT_TRUE(close(1, *ranks[2], Reason::RemoteDied).ok());
  expect(next(*ranks[0]), Reason::RemoteDied, "node-b: rank 2 (pid 802) is gone: killed");
  expect(next(*ranks[1]), Reason::RemoteDied, "rank 2 (pid 802) is gone");
}

TEST_F(NodesFailureTest, AQuarantinedClientIsHeardOfOnTheOtherNode) {
  start(2);
  const auto ranks = group({0, 1});
  ranks[0]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1));
  ring::WorkRequest torn = ranks[1]->request(5);
  torn.magic = 1;
  ranks[1]->submit(torn);
  expect(next(*ranks[0]), Reason::Quarantined, "rank 1");
}

TEST_F(NodesFailureTest, ALeaveLetsRunWhatAllHadCalledAndEndsTheRest) {
  start(2);
  const auto ranks = group({0, 1});
  fill(ranks, 5);
  for (int i = 0; i < 3; ++i) ranks[0]->call(5);
  for (int i = 0; i < 2; ++i) ranks[1]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 3) && has_taken(1, 1, 2));
  // Rank 0 leaves with one that only it has called; its memory is its own when it is told so.
  EXPECT_TRUE(leave(0, *ranks[0]).ok());
  for (Client* rank : ranks) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
  }
  expect(next(*ranks[0]), Reason::RemoteAborted, "left the communicator before seq 2");
  ranks[1]->call(5);
  expect(next(*ranks[1]), Reason::RemoteAborted, "left the communicator before seq 2");
  EXPECT_TRUE(leave(1, *ranks[1]).ok());
  for (const std::size_t node : {0u, 1u})
    EXPECT_TRUE(until([&] { return inspect(node).communicators.empty(); }));
  EXPECT_TRUE(until([&] { return nodes_[0]->executor.load()->forgotten == 1; }));
}

TEST_F(NodesFailureTest, ALeaveIsAnsweredOnlyWhenWhatRunsHasEnded) {
  start(2);
  const auto ranks = group({0, 1});
  for (const std::size_t node : {0u, 1u}) nodes_[node]->executor.load()->holds = true;
  for (Client* rank : ranks) rank->call(5);
  std::atomic<bool> has_left{false};
  std::this_thread::sleep_for(milliseconds(30));
  nodes_[0]->worker->leave_communicator(ranks[0]->id(), ranks[0]->member,
                                        [&](Result<void>) { has_left = true; });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(has_left);
  for (const std::size_t node : {0u, 1u}) nodes_[node]->executor.load()->holds = false;
  EXPECT_TRUE(until([&] { return has_left.load(); }));
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesFailureTest, ThreeNodesThatLeaveAtDifferentPointsAgreeOnTheEnd) {
  start(3);
  const auto ranks = group({0, 1, 2});
  const int called[] = {6, 3, 4};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < called[rank]; ++i) ranks[rank]->call(5);
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(has_taken(rank, static_cast<Rank>(rank), static_cast<std::uint64_t>(called[rank])));
  }
  std::vector<std::atomic<int>> left(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    nodes_[rank]->worker->leave_communicator(ranks[rank]->id(), ranks[rank]->member,
                                             [&left, rank](Result<void>) { ++left[rank]; });
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(until([&] { return left[rank] == 1; }));
    for (int i = 0; i < called[rank]; ++i) {
      const auto completion = next(*ranks[rank]);
      if (i < 3) {
        EXPECT_TRUE(code_of(completion) == ErrorCode::Ok ||
                    reason_of(completion) == Reason::RemoteAborted)
            << text_of(completion);
      } else {
        EXPECT_EQ(reason_of(completion), Reason::RemoteAborted) << text_of(completion);
      }
    }
  }
}

TEST_F(NodesFailureTest, ALostLinkEndsWhatSpansItAndNothingElse) {
  start(3);
  const auto pair = group({0, 1}, 7), all = group({0, 1, 2}, 8);
  pair[0]->call(5);
  all[0]->call(5);
  all[2]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1) && has_taken(2, 2, 1));
  std::this_thread::sleep_for(milliseconds(20));
  nodes_[1]->stop();
  // Its daemon stopped in good order, and had the time to say so.
  expect(next(*pair[0]), Reason::ShuttingDown, "node-b: the daemon stopped");
  expect(next(*all[0]), Reason::ShuttingDown, "node-b: the daemon stopped");
  EXPECT_NE(text_of(next(*all[2])).find("node-b"), std::string::npos);
  EXPECT_TRUE(until([&] { return nodes_[0]->links_lost().size() == 1; }));
  EXPECT_EQ(nodes_[0]->links_lost().front().first, nodes_[1]->peer);
  Client &a = client(0), &c = client(2);
  // The others go on, and make new ones.
  std::vector<Client*> rest{&a, &c};
  CommunicatorSpec spec;
  spec.node_of_rank = {0, 1};
  spec.communicator = 9;
  spec.nodes = {{nodes_[0]->peer, nodes_[0]->name}, {nodes_[2]->peer, nodes_[2]->name}};
  for (const std::size_t node : {0u, 1u}) {
    spec.here = static_cast<std::uint32_t>(node);
    spec.ranks = {{rest[node]->id(), static_cast<Rank>(node)}};
    auto& worker = *nodes_[node * 2]->worker;
    const auto formed =
        await<std::vector<MemberId>>([&](auto done) { worker.form_communicator(spec, done); });
    ASSERT_TRUE(formed.ok()) << formed.error().to_string();
    rest[node]->member = formed->front();
  }
  for (Client* rank : rest) rank->call(5);
  for (Client* rank : rest) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesFailureTest, AClosedLinkSaysWhyAndItMayBeMadeAgain) {
  start(2);
  const auto ranks = group({0, 1});
  ranks[0]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1));
  const Error why = error(ErrorCode::Unavailable, Reason::Timeout, "silent for 5000 ms");
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker->close_link(nodes_[1]->peer, why, done);
              }).ok());
  expect(next(*ranks[0]), Reason::RemoteDied, "node node-b is gone: silent for 5000 ms");
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
  EXPECT_TRUE(until([&] { return nodes_[1]->links_lost().size() == 1; }));
  link(0, 1);
  form(ranks, {0, 1}, 8);
  for (Client* rank : ranks) rank->call(5);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesFailureTest, ATimeoutNamesRankPidAndNodeThatDidNotCall) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ranks[0]->submit(in_time(*ranks[0], milliseconds(200)));
  ranks[1]->call(5);
  const auto completion = next(*ranks[0]);
  expect(completion, Reason::Timeout, "rank 2 (pid 802 on node-b) did not call seq 0");
  EXPECT_EQ(completion.culprit_rank, 2);
  // And there, too, it is heard at once, long before its own deadline.
  expect(next(*ranks[1]), Reason::Timeout, "rank 2 (pid 802 on node-b)");
}

TEST_F(NodesFailureTest, WhoWaitsForAnotherNodeIsToldByInspectToo) {
  start(2);
  const auto ranks = group({0, 1});
  ranks[0]->call(5);
  EXPECT_TRUE(until([&] {
    const auto diagnosis = inspect(0).communicators.front().diagnosis;
    return diagnosis.find("rank 1 (pid 801 on node-b) has not called; rank 0 waits at seq 0") == 0;
  })) << inspect(0).communicators.front().diagnosis;
  const auto seen = inspect(0).communicators.front().ranks;
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].node, "node-a");
  EXPECT_EQ(seen[1].node, "node-b");
  EXPECT_EQ(seen[1].pid, 801);
  EXPECT_FALSE(seen[1].session.valid()) << "another daemon's sessions are its own";
  ranks[1]->call(5);
  for (Client* rank : ranks) EXPECT_EQ(code_of(next(*rank)), ErrorCode::Ok);
}

TEST_F(NodesFailureTest, RanksThatWaitForEachOtherOnTwoCommunicatorsAreFoundBetweenNodes) {
  start(2);
  // Two processes, each with a rank in both; a session for each, as it would have two members.
  Client &a1 = client(0, 900), &a2 = client(0, 900), &b1 = client(1, 901), &b2 = client(1, 901);
  form({&a1, &b1}, {0, 1}, 7);
  form({&a2, &b2}, {0, 1}, 8);
  a1.submit(in_time(a1, milliseconds(300)));   // A waits in X for B
  b2.submit(in_time(b2, milliseconds(5000)));  // B waits in Y for A
  expect(next(a1), Reason::Crossed, "wait for each other");
  expect(next(b2), Reason::Crossed, "wait for each other");
}

TEST_F(NodesFailureTest, ADrainTellsTheOtherNodes) {
  start(2);
  const auto ranks = group({0, 1});
  ranks[0]->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1));
  const auto drained =
      await<void>([&](auto done) { nodes_[0]->worker->drain(milliseconds(50), done); });
  EXPECT_TRUE(drained.ok());
  expect(next(*ranks[0]), Reason::ShuttingDown, "shut down");
  // Who had called before it is told may still have got its result: all of it was there.
  ASSERT_TRUE(until([&] { return inspect(1).communicators.front().state.find("revoked") == 0; }))
      << inspect(1).communicators.front().state;
  ranks[1]->call(5);
  expect(next(*ranks[1]), Reason::Revoked, "node-a");
}

}  // namespace
}  // namespace arcomm::test
