// Daemons, workers, clients and messages that are lost while a communicator over several nodes
// comes into being: who waits hears in time who it was.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/daemon/control/peers/simulated_nodes.h"

namespace arcomm::test {
namespace {

TEST(NodeMeetings, ATimeoutNamesTheRanksThatAreMissingAndWhatEachNodeHasCalled) {
  SimulatedNet net(3);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(0).call(id, 0, 5, milliseconds(500));
  net.node(1).call(id, 2, 5, milliseconds(2000));
  net.node(1).call(id, 4, 5, milliseconds(2000));
  net.kill(2);
  net.run_for(milliseconds(510));
  const Error& why = net.node(0).answer(0)->error();
  EXPECT_EQ(why.code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(why.rank, 1);
  EXPECT_EQ(why.message,
            "rank 0 waited 500 ms for the other ranks: ranks 1, 3 of 5 have not called: "
            "node node-a (10.0.0.1:7400) has called rank 0; node node-b (10.0.0.2:7400) has called "
            "ranks 2, 4; node 10.0.0.3:7400 is not reachable");
  EXPECT_EQ(net.node(1).answer(0), nullptr) << "only who is late is answered";
  net.run_for(milliseconds(1600));
  EXPECT_NE(net.node(1).why(0).find("ranks 0, 1, 3 of 5 have not called"), std::string::npos);
}

TEST(NodeMeetings, ATimeoutSaysThatTheNodeWhereTheyMeetDoesNotAnswer) {
  SimulatedNet net(2);
  net.kill(0);
  net.node(1).call(id_at(net, 0), 1, 2, milliseconds(300));
  net.run_for(milliseconds(310));
  EXPECT_NE(net.node(1).why(0).find("rank 0 of 2 has not called; ranks on other nodes meet at "
                                    "10.0.0.1:7400, which does not answer: 10.0.0.1:7400: "
                                    "connection refused"),
            std::string::npos)
      << net.node(1).why(0);
}

TEST(NodeMeetings, ARootThatComesBackHearsOfThoseThatStillWait) {
  SimulatedNet net(2);
  net.kill(0);
  net.node(1).call(id_at(net, 0), 1, 2, milliseconds(3000));
  net.run_for(milliseconds(300));
  net.restart(0);
  net.node(0).call(id_at(net, 0), 0, 2, milliseconds(2000));
  net.run_for(milliseconds(500));
  EXPECT_EQ(net.node(0).why(0), "joined");
  EXPECT_EQ(net.node(1).why(0), "joined");
}

TEST(NodeMeetings, ARootThatIsLostIsSaidToThoseThatWaitedThere) {
  SimulatedNet net(2);
  net.node(1).call(id_at(net, 0), 1, 2, milliseconds(3000));
  net.run_for(milliseconds(10));
  net.kill(0);
  net.run_for(milliseconds(50));
  EXPECT_NE(net.node(1).why(0).find("node node-a (10.0.0.1:7400), where the ranks of this "
                                    "communicator met, is lost"),
            std::string::npos)
      << net.node(1).why(0);
}

TEST(NodeMeetings, ANodeThatDiesFailsTheCallsThatWaitWithItsRanks) {
  SimulatedNet net(3);
  net.node(0).call(id_at(net, 0), 0, 3, kSoon);
  net.node(1).call(id_at(net, 0), 2, 3, kSoon);
  net.run_for(milliseconds(10));
  net.kill(1);
  net.run_for(milliseconds(50));
  const Error& why = net.node(0).answer(0)->error();
  EXPECT_EQ(why.reason, Reason::RemoteDied);
  EXPECT_EQ(why.rank, 2);
  EXPECT_NE(why.message.find("rank 2 had called on node node-b"), std::string::npos);
}

TEST(NodeMeetings, ANodeThatDiesWhileAllFormFailsTheOthersNamingIt) {
  SimulatedNet net(3);
  net.node(1).forming_takes = milliseconds(200);
  for (std::size_t node = 0; node < 3; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 3, kSoon);
  net.run_for(milliseconds(30));
  EXPECT_EQ(net.node(0).root->attempts(), 1u);
  net.kill(1);
  net.run_for(milliseconds(60));
  for (const std::size_t node : {0u, 2u}) {
    EXPECT_EQ(net.node(node).answer(0)->error().rank, 1) << net.node(node).why(0);
    EXPECT_NE(net.node(node).why(0).find("node-b"), std::string::npos);
    EXPECT_TRUE(net.node(node).members.empty()) << "what was formed goes back";
  }
}

TEST(NodeMeetings, AWorkerThatRefusesFailsAllNamingItsRanksAndNode) {
  SimulatedNet net(2);
  net.node(1).refuses =
      error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "net.staging_bytes");
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(50));
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::ResourceExhausted);
  const Error& why = net.node(0).answer(0)->error();
  EXPECT_EQ(why.code, ErrorCode::ResourceExhausted);
  EXPECT_NE(why.message.find("node-b"), std::string::npos) << why.message;
  EXPECT_NE(why.message.find("net.staging_bytes"), std::string::npos);
  EXPECT_TRUE(net.node(0).members.empty());
}

TEST(NodeMeetings, ALinkThatCannotBeMadeFailsAll) {
  SimulatedNet net(2);
  net.node(1).no_link = error(ErrorCode::Unavailable, Reason::None, "no route to node-a");
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(50));
  for (std::size_t node = 0; node < 2; ++node) {
    EXPECT_NE(net.node(node).why(0).find("no route to node-a"), std::string::npos)
        << net.node(node).why(0);
  }
}

TEST(NodeMeetings, ALinkThatIsStillWaitedForHoldsUpNoLaterAttempt) {
  SimulatedNet net(2);
  net.node(0).waits_for_links = true;
  net.node(1).refuses = error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "full");
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(50));
  EXPECT_EQ(net.node(0).answer(0)->error().code, ErrorCode::ResourceExhausted);
  net.node(0).waits_for_links = false;
  net.node(1).refuses.reset();
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(50));
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(net.node(node).why(1), "joined");
}

TEST(NodeMeetings, ALostCommitIsSentAgain) {
  SimulatedNet net(2);
  int lost = 0;
  net.loses = [&lost](const std::string& kind, std::size_t, std::size_t) {
    return kind == "commit" && lost++ == 0;
  };
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(300));
  EXPECT_EQ(lost, 2);
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(net.node(node).why(0), "joined");
  EXPECT_EQ(net.node(0).root->attempts(), 0u);
}

TEST(NodeMeetings, ACommitThatNeverComesEndsAtTheDeadlineForAll) {
  SimulatedNet net(2);
  net.loses = [](const std::string& kind, std::size_t, std::size_t) { return kind == "commit"; };
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(kSoon + milliseconds(10));
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::DeadlineExceeded);
  EXPECT_TRUE(net.node(1).members.empty());
  EXPECT_EQ(net.node(0).why(0), "joined");
  EXPECT_EQ(net.node(0).rendezvous->ready(), 0u) << "its worker has heard of it";
}

TEST(NodeMeetings, WhatBreaksBetweenFormAndCommitIsToldWithItsNode) {
  SimulatedNet net(2);
  net.loses = [](const std::string& kind, std::size_t, std::size_t) { return kind == "commit"; };
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(30));
  ASSERT_EQ(net.node(1).answer(0), nullptr);
  // As its worker says it.
  net.node(1).rendezvous->dissolve(id_at(net, 0), 1, "node node-a is gone: its power is off");
  const Error& why = net.node(1).answer(0)->error();
  EXPECT_EQ(why.reason, Reason::Revoked);
  EXPECT_EQ(why.message,
            "the communicator broke while its nodes formed it: node node-a is gone: its power is "
            "off");
}

TEST(NodeMeetings, ARootThatDiesBetweenTwoCommitsLeavesNobodyWaiting) {
  SimulatedNet net(3);
  net.loses = [](const std::string& kind, std::size_t, std::size_t to) {
    return kind == "commit" && to == 2;
  };
  net.node(1).call(id_at(net, 0), 0, 2, kSoon);
  net.node(2).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(30));
  EXPECT_EQ(net.node(1).why(0), "joined");
  EXPECT_EQ(net.node(2).answer(0), nullptr);
  EXPECT_EQ(net.node(2).rendezvous->forming().at(0).diagnosis,
            "formed here; other nodes do not have it yet");
  net.kill(0);
  net.run_for(milliseconds(60));
  EXPECT_NE(net.node(2).why(0).find("is lost"), std::string::npos) << net.node(2).why(0);
  EXPECT_TRUE(net.node(2).members.empty());
  EXPECT_EQ(net.node(1).rendezvous->ready(), 0u) << "its worker has heard of it";
}

TEST(NodeMeetings, ASessionThatEndsFailsTheCallsOfOtherNodesNamingItsRank) {
  SimulatedNet net(2);
  net.node(0).call(id_at(net, 0), 0, 3, kSoon);
  net.node(1).call(id_at(net, 0), 2, 3, kSoon);
  net.run_for(milliseconds(10));
  net.node(1).rendezvous->session_gone(SessionId{2, 2}, 2002, Reason::RemoteDied);
  net.run_for(milliseconds(10));
  const Error& why = net.node(0).answer(0)->error();
  EXPECT_EQ(why.rank, 2);
  EXPECT_EQ(why.reason, Reason::RemoteDied);
  EXPECT_EQ(why.message,
            "on node node-b (10.0.0.2:7400): rank 2 (pid 2002) ended while the communicator was "
            "forming");
}

TEST(NodeMeetings, ASessionThatEndsWhileAllFormFailsThem) {
  SimulatedNet net(2);
  net.node(0).forming_takes = milliseconds(100);
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(30));
  net.node(1).rendezvous->session_gone(SessionId{1, 2}, 2001, Reason::RemoteDied);
  net.run_for(milliseconds(150));
  for (std::size_t node = 0; node < 2; ++node) {
    EXPECT_NE(net.node(node).why(0).find("rank 1 (pid 2001) ended"), std::string::npos)
        << net.node(node).why(0);
    EXPECT_TRUE(net.node(node).members.empty());
  }
}

TEST(NodeMeetings, ACallerThatGoesBeforeFormComesLeavesTheOthersWaiting) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  bool held = false;
  net.loses = [&](const std::string& kind, std::size_t, std::size_t) {
    if (kind == "form" && !held) {
      held = true;
      net.node(1).rendezvous->cancel(1);  // while Form is on its way
    }
    return false;
  };
  net.node(0).call(id, 0, 2, kSoon);
  net.run_for(milliseconds(30));
  EXPECT_TRUE(held);
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::Cancelled);
  EXPECT_EQ(net.node(0).answer(0), nullptr);
  EXPECT_TRUE(net.node(0).members.empty());
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(50));
  EXPECT_EQ(net.node(0).why(0), "joined");
  EXPECT_EQ(net.node(1).why(1), "joined");
}

TEST(NodeMeetings, ADeadlineThatPassesWhileAnotherNodeFormsIsAnsweredInTime) {
  SimulatedNet net(2);
  net.node(1).forming_takes = milliseconds(5000);
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, milliseconds(300));
  const auto deadline = net.now() + milliseconds(300);
  net.run_for(milliseconds(310));
  for (std::size_t node = 0; node < 2; ++node) {
    ASSERT_EQ(net.node(node).answers[0]->times, 1);
    EXPECT_LE(net.node(node).answers[0]->at, deadline + milliseconds(1));
  }
  EXPECT_TRUE(net.node(0).members.empty());
  net.run_for(milliseconds(6000));
  EXPECT_TRUE(net.node(1).members.empty()) << "what is formed after all goes back";
}

}  // namespace
}  // namespace arcomm::test
