// Communicators over several nodes come into being: the state machines of all daemons over a
// simulated network (simulated_nodes.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/control/peers/meetings/meeting_place.h"
#include "tests/unit/daemon/control/peers/simulated_nodes.h"

namespace arcomm::test {
namespace {

TEST(NodeMeetings, RanksOfTwoNodesFormOneCommunicator) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(0).call(id, 0, 4, kSoon);
  net.node(1).call(id, 1, 4, kSoon);
  net.node(0).call(id, 3, 4, kSoon);
  net.run_for(milliseconds(20));
  net.node(1).call(id, 2, 4, kSoon);
  net.run_for(milliseconds(20));
  for (std::size_t node = 0; node < 2; ++node) {
    for (std::size_t call = 0; call < 2; ++call) {
      ASSERT_EQ(net.node(node).why(call), "joined");
      EXPECT_EQ(net.node(node).answer(call)->value().epoch, 1u);
      EXPECT_EQ(net.node(node).answer(call)->value().rank_devices.size(), 4u);
      EXPECT_EQ(net.node(node).answers[call]->times, 1);
    }
    ASSERT_EQ(net.node(node).members.size(), 2u);
    const CommunicatorSpec& spec = net.node(node).members.begin()->second.spec;
    EXPECT_EQ(spec.node_of_rank, (std::vector<std::uint32_t>{0, 1, 1, 0}));
    EXPECT_EQ(spec.here, node);
    EXPECT_EQ(spec.uid, 1000u);
    EXPECT_EQ(spec.nodes[1].name, "node-b");
    EXPECT_NE(spec.communicator, 0u);
    EXPECT_EQ(net.node(node).links,
              (std::vector<std::string>{node == 0 ? "node-b host:0" : "node-a host:0"}));
  }
  EXPECT_EQ(net.node(0).members.begin()->second.spec.communicator,
            net.node(1).members.begin()->second.spec.communicator);
  EXPECT_EQ(net.node(0).root->size() + net.node(0).root->attempts(), 0u);
  EXPECT_EQ(net.node(0).here->size() + net.node(1).here->size(), 0u);
}

// Of communicators of ranks 0, 1, ... on nodes that call in turn, and meet at node 0.
std::vector<NetworkPolicy> policies_of(SimulatedNet& net, const std::vector<std::size_t>& nodes) {
  const UniqueIdBytes id = id_at(net, 0);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    net.node(nodes[rank]).call(id, static_cast<Rank>(rank), static_cast<int>(nodes.size()), kSoon);
  net.run_for(milliseconds(50));
  std::vector<NetworkPolicy> policies;
  for (const std::size_t node : nodes) {
    EXPECT_EQ(net.node(node).why(0), "joined");
    for (const auto& [member, held] : net.node(node).members) policies.push_back(held.spec.policy);
  }
  return policies;
}

TEST(NodeMeetings, GpusTakeCodecsWhereAllNodesOfTheCommunicatorAllowThem) {
  SimulatedNet net(4);
  net.node(0).allows_gpu_codecs = net.node(1).allows_gpu_codecs = false;
  for (const NetworkPolicy& policy : policies_of(net, {2, 3})) {
    EXPECT_TRUE(policy.gpu_codecs) << "it meets at another node, and a third has no rank in it";
    EXPECT_EQ(policy.coding_rules, kCodingRules);
    EXPECT_EQ(policy.no_gpu_codecs_on, "");
  }
}

TEST(NodeMeetings, ANodeThatAllowsNoGpuCodecsKeepsAllNodesFromThemAndIsNamed) {
  SimulatedNet net(4);
  net.node(1).allows_gpu_codecs = net.node(3).allows_gpu_codecs = false;
  const std::vector<NetworkPolicy> policies = policies_of(net, {2, 3, 1});
  ASSERT_EQ(policies.size(), 3u);
  for (const NetworkPolicy& policy : policies) {
    EXPECT_FALSE(policy.gpu_codecs);
    EXPECT_EQ(policy.no_gpu_codecs_on, "node-d (10.0.0.4:7400)") << "the one of the lowest rank";
  }
}

TEST(NodeMeetings, ANodeThatSaysNothingOfGpuCodecsHasPromisedNone) {
  SimulatedNet net(2);
  net.node(1).says_nothing_of_codecs = true;
  const std::vector<NetworkPolicy> policies = policies_of(net, {0, 1});
  ASSERT_EQ(policies.size(), 2u);
  for (const NetworkPolicy& policy : policies) {
    EXPECT_FALSE(policy.gpu_codecs);
    EXPECT_EQ(policy.no_gpu_codecs_on, "node-b (10.0.0.2:7400)");
    EXPECT_EQ(policy.coding_rules, 0u) << "it would choose none for an error class";
  }
}

// Its table would be dropped, and its calls be plain beside those that the others encode.
TEST(NodeMeetings, ARankWhoseLibraryReadsOtherLaunchTablesKeepsAllFromCodecsForErrorClasses) {
  SimulatedNet net(4);
  net.node(1).launch_table_version = kLaunchTableVersion - 1;
  const std::vector<NetworkPolicy> policies = policies_of(net, {2, 3, 1});
  ASSERT_EQ(policies.size(), 3u);
  for (const NetworkPolicy& policy : policies) {
    EXPECT_EQ(policy.coding_rules, 0u);
    EXPECT_TRUE(policy.gpu_codecs) << "who names one gets it";
  }
}

TEST(NodeMeetings, ALibraryThatReadsOtherTablesCountsBesideOneOfItsNodeThatReadsOurs) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).launch_table_version = kLaunchTableVersion + 1;
  net.node(1).call(id, 1, 3, kSoon);
  net.run_for(milliseconds(10));
  net.node(1).launch_table_version = kLaunchTableVersion;
  net.node(1).call(id, 2, 3, kSoon);
  net.node(0).call(id, 0, 3, kSoon);
  net.run_for(milliseconds(100));
  for (std::size_t node = 0; node < 2; ++node) {
    ASSERT_EQ(net.node(node).why(0), "joined");
    for (const auto& [member, held] : net.node(node).members)
      EXPECT_EQ(held.spec.policy.coding_rules, 0u) << "node " << node;
  }
}

// Between the announcement and Form another process calls for the same rank.
TEST(NodeMeetings, ACallerThatIsReplacedByOneOfAnotherLibraryIsAnnouncedBeforeAnythingIsFormed) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  // What would tell the root of it in time: the withdrawal, and what is announced next.
  net.loses = [left = 2](const std::string& kind, std::size_t from, std::size_t) mutable {
    return kind == "announce" && from == 1 && left-- > 0;
  };
  net.node(1).rendezvous->cancel(1);
  net.node(1).launch_table_version = kLaunchTableVersion - 1;
  net.node(1).call(id, 1, 2, kSoon);
  net.node(0).call(id, 0, 2, kSoon);
  net.run_for(milliseconds(900));
  for (std::size_t node = 0; node < 2; ++node) {
    ASSERT_EQ(net.node(node).members.size(), 1u) << net.node(node).why(node == 0 ? 0 : 1);
    EXPECT_EQ(net.node(node).members.begin()->second.spec.policy.coding_rules, 0u);
  }
}

// By a reload of its settings while its rank waits: what it announced is not so any more.
TEST(NodeMeetings, ANodeThatAllowsNoGpuCodecsAnyMoreIsAskedAnewBeforeAnythingIsFormed) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  net.node(1).allows_gpu_codecs = false;
  net.node(0).call(id, 0, 2, kSoon);
  net.run_for(milliseconds(100));
  for (std::size_t node = 0; node < 2; ++node) {
    ASSERT_EQ(net.node(node).why(0), "joined");
    ASSERT_EQ(net.node(node).members.size(), 1u);
    const NetworkPolicy& policy = net.node(node).members.begin()->second.spec.policy;
    EXPECT_FALSE(policy.gpu_codecs);
    EXPECT_EQ(policy.no_gpu_codecs_on, "node-b (10.0.0.2:7400)");
  }
}

TEST(NodeMeetings, ARankThatIsInUseOnAnotherNodeIsRefusedAtOnceNamingBoth) {
  SimulatedNet net(4);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).call(id, 0, 2, kSoon);
  net.node(2).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(50));
  ASSERT_EQ(net.node(2).why(0), "joined");
  net.node(3).call(id, 1, 2, milliseconds(60'000));
  net.run_for(milliseconds(400));
  ASSERT_NE(net.node(3).answer(0), nullptr) << "at once, not at its deadline";
  ASSERT_FALSE(*net.node(3).answer(0));
  const Error& why = net.node(3).answer(0)->error();
  EXPECT_EQ(why.code, ErrorCode::AlreadyExists);
  EXPECT_EQ(why.rank, 1);
  EXPECT_NE(why.message.find("in use on node node-c (10.0.0.3:7400), and node node-d "
                             "(10.0.0.4:7400) calls for it, too"),
            std::string::npos)
      << why.message;
  EXPECT_EQ(net.node(0).root->size(), 0u);
  EXPECT_EQ(net.node(1).members.size(), 1u) << "those who have it are not disturbed";
  EXPECT_EQ(net.node(2).members.size(), 1u);
}

TEST(NodeMeetings, ARankOfACommunicatorOfOneNodeIsRefusedElsewhereWhereThatNodeIsTheRoot) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(0).call(id, 0, 2, kSoon);
  net.node(0).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  ASSERT_EQ(net.node(0).why(1), "joined");
  net.node(1).call(id, 1, 2, milliseconds(60'000));
  net.run_for(milliseconds(400));
  EXPECT_NE(net.node(1).why(0).find("in use on node node-a"), std::string::npos)
      << net.node(1).why(0);
}

TEST(NodeMeetings, ARankOfACommunicatorThatHasEndedMayMoveToAnotherNode) {
  SimulatedNet net(3);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(0).call(id, 0, 2, kSoon);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(50));
  ASSERT_EQ(net.node(1).why(0), "joined");
  const std::uint64_t communicator = net.node(1).members.begin()->second.spec.communicator;
  // The mover is faster than what the nodes that have it hear.
  net.node(2).call(id, 1, 2, milliseconds(5000));
  net.run_for(milliseconds(100));
  net.node(0).revoke(communicator);
  net.node(1).revoke(communicator);
  net.run_for(milliseconds(500));
  EXPECT_EQ(net.node(2).why(0), "no answer") << "it waits for rank 0";
  net.node(0).call(id, 0, 2, kSoon);
  net.run_for(milliseconds(50));
  EXPECT_EQ(net.node(2).why(0), "joined");
  EXPECT_EQ(net.node(0).why(1), "joined");
}

TEST(NodeMeetings, RanksThatDisagreeAboutTheirDefaultCodecAreToldBothAndWhere) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(0).default_coding = {.codec = Codec::Q6};
  net.node(1).default_coding = {.error_class = {.least_snr_db = 30}};
  net.node(0).call(id, 0, 2, kSoon);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(50));
  for (const std::size_t node : {0, 1}) {
    ASSERT_NE(net.node(node).answer(0), nullptr);
    ASSERT_FALSE(*net.node(node).answer(0));
    const Error& why = net.node(node).answer(0)->error();
    EXPECT_EQ(why.reason, Reason::Mismatch);
    for (const char* word : {"default codec", "q6", "at least 30 dB", "node-a", "node-b"})
      EXPECT_NE(why.message.find(word), std::string::npos) << word << ": " << why.message;
  }
}

TEST(NodeMeetings, RanksThatAgreeAboutTheirDefaultCodecMeetAndTheWorkersHearOfIt) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  for (const std::size_t node : {0, 1}) {
    net.node(node).default_coding = {.codec = Codec::Q6};
    net.node(node).call(id, static_cast<Rank>(node), 2, kSoon);
  }
  net.run_for(milliseconds(50));
  for (const std::size_t node : {0, 1}) {
    ASSERT_EQ(net.node(node).why(0), "joined");
    EXPECT_EQ(net.node(node).members.begin()->second.spec.default_coding.codec, Codec::Q6);
  }
}

TEST(NodeMeetings, WhatIsCompleteHereNeverTouchesTheNetwork) {
  SimulatedNet net(2);
  net.node(1).call(id_at(net, 0), 0, 2, kSoon);
  net.node(1).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(50));
  EXPECT_EQ(net.node(1).why(0), "joined");
  EXPECT_EQ(net.messages, 0u);
}

TEST(NodeMeetings, TheRestMayComeHereAfterSomeRanksWereAnnounced) {
  SimulatedNet net(2);
  net.node(1).call(id_at(net, 0), 0, 2, kSoon);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net.node(0).root->size(), 1u);
  net.node(1).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net.node(1).why(0), "joined");
  EXPECT_EQ(net.node(0).root->size(), 0u);
}

TEST(NodeMeetings, ARootNeedHaveNoRankOfItsOwn) {
  SimulatedNet net(3);
  net.node(1).call(id_at(net, 0), 0, 2, kSoon);
  net.node(2).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(30));
  EXPECT_EQ(net.node(1).why(0), "joined");
  EXPECT_EQ(net.node(2).why(0), "joined");
  EXPECT_TRUE(net.node(0).members.empty());
}

TEST(NodeMeetings, PlainIdsMeetAtOneNodeThatAllChoose) {
  SimulatedNet net(3);
  for (std::uint8_t number = 1; number <= 8; ++number) {
    UniqueIdBytes id{};
    id.fill(static_cast<std::byte>(number));
    for (std::size_t node = 0; node < 3; ++node)
      net.node(node).call(id, static_cast<Rank>(node), 3, kSoon);
  }
  net.run_for(milliseconds(50));
  for (std::size_t node = 0; node < 3; ++node) {
    for (std::size_t call = 0; call < 8; ++call) EXPECT_EQ(net.node(node).why(call), "joined");
  }
}

TEST(MeetingPlace, IsTheAddressInTheIdOrOneOfAllByHash) {
  SimulatedNet net(3);
  EXPECT_EQ(meeting_place(id_at(net, 2), net.addresses), net.addresses[2]);
  std::set<std::string> chosen;
  for (int number = 0; number < 64; ++number) {
    UniqueIdBytes id{};
    id[3] = static_cast<std::byte>(number);
    chosen.insert(meeting_place(id, net.addresses));
    EXPECT_EQ(meeting_place(id, net.addresses), meeting_place(id, net.addresses));
  }
  EXPECT_EQ(chosen.size(), 3u) << "all nodes share the work";
  EXPECT_EQ(meeting_place(UniqueIdBytes{}, {}), "");
}

TEST(NodeMeetings, NodesThatDisagreeAboutTheNumberOfRanksBothHearIt) {
  SimulatedNet net(2);
  net.node(0).call(id_at(net, 0), 0, 2, kSoon);
  net.node(1).call(id_at(net, 0), 1, 3, kSoon);
  net.run_for(milliseconds(30));
  for (std::size_t node = 0; node < 2; ++node) {
    const Error& why = net.node(node).answer(0)->error();
    EXPECT_EQ(why.reason, Reason::Mismatch);
    EXPECT_NE(why.message.find("node-a"), std::string::npos) << why.message;
    EXPECT_NE(why.message.find("node-b"), std::string::npos) << why.message;
  }
}

TEST(NodeMeetings, NodesWhoseRanksAreOnOtherKindsOfDevicesBothHearIt) {
  SimulatedNet net(2);
  net.node(1).worker = "gpu";
  net.node(0).call(id_at(net, 0), 0, 2, kSoon);
  net.node(1).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(30));
  EXPECT_EQ(net.node(0).answer(0)->error().code, ErrorCode::Unimplemented);
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::Unimplemented);
}

TEST(NodeMeetings, ARankThatAnotherNodeHasCalledIsRefusedAndDisturbsNobody) {
  SimulatedNet net(3);
  net.node(0).call(id_at(net, 0), 0, 2, kSoon);
  net.run_for(milliseconds(10));
  net.node(1).call(id_at(net, 0), 0, 2, kSoon);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(net.node(1).why(0).find("node-a"), std::string::npos);
  net.node(2).call(id_at(net, 0), 1, 2, kSoon);
  net.run_for(milliseconds(20));
  EXPECT_EQ(net.node(0).why(0), "joined");
  EXPECT_EQ(net.node(2).why(0), "joined");
}

TEST(NodeMeetings, AnotherUsersRanksAreRefusedOnWhateverNode) {
  SimulatedNet net(2);
  net.node(0).call(id_at(net, 0), 0, 2, kSoon, 1000);
  net.run_for(milliseconds(10));
  net.node(1).call(id_at(net, 0), 1, 2, kSoon, 2000);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net.node(1).answer(0)->error().code, ErrorCode::PermissionDenied);
  EXPECT_EQ(net.node(0).answer(0), nullptr);
  net.node(1).call(id_at(net, 0), 1, 2, kSoon, 1000);
  net.run_for(milliseconds(20));
  EXPECT_EQ(net.node(0).why(0), "joined");
}

TEST(NodeMeetings, ARebuildIsOneEpochAboveWhatAnyNodeRemembersAndRanksMayMove) {
  SimulatedNet net(3);
  const UniqueIdBytes id = id_at(net, 0);
  // Node b has had it for itself, twice.
  for (int build = 1; build <= 2; ++build) {
    net.node(1).call(id, 0, 1, kSoon);
    net.run_for(milliseconds(10));
    net.node(1).rendezvous->dissolve(id, static_cast<std::uint64_t>(build));
  }
  for (std::size_t node = 0; node < 3; ++node)
    net.node(node).call(id, static_cast<Rank>(node), 3, kSoon);
  net.run_for(milliseconds(30));
  ASSERT_EQ(net.node(0).why(0), "joined");
  EXPECT_EQ(net.node(0).answer(0)->value().epoch, 3u);
  net.kill(2);
  net.run_for(milliseconds(50));
  // Two are left; what was rank 1 of node b is rank 0 now.
  net.node(1).call(id, 0, 2, kSoon);
  net.node(0).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(50));
  ASSERT_EQ(net.node(0).why(1), "joined");
  EXPECT_EQ(net.node(0).answer(1)->value().epoch, 4u);
  EXPECT_EQ(net.node(1).answer(3)->value().epoch, 4u);
}

TEST(NodeMeetings, ATakenRankOfAnotherNodeIsNamedWithIt) {
  SimulatedNet net(2);
  for (std::size_t node = 0; node < 2; ++node)
    net.node(node).call(id_at(net, 0), static_cast<Rank>(node), 2, kSoon);
  net.run_for(milliseconds(30));
  net.node(0).call(id_at(net, 0), 1, 2, kSoon);
  EXPECT_EQ(net.node(0).answer(1)->error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(net.node(0).why(1).find("in use on node node-b"), std::string::npos);
  EXPECT_TRUE(net.node(0).rendezvous->live(id_at(net, 0), 1000, 1))
      << "so that its worker can be asked whether it still is";
}

}  // namespace
}  // namespace arcomm::test
