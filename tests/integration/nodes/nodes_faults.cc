// What fails between nodes: disagreement, absence, deaths of clients and of daemons, a frozen one.
// Survivors hear in time which rank and node it was, and form their communicator again.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/nodes/cluster_test.h"

namespace arcomm::support {
namespace {

class NodesFaults : public ClusterTest {
 protected:
  static void expect_text(const Reply& reply, std::string_view text) {
    EXPECT_NE(reply.message.find(text), std::string::npos)
        << "\"" << text << "\" is not in: " << reply.to_string();
  }
};

TEST_F(NodesFaults, RanksOnTwoNodesThatAskForDifferentThingsHearWhatAndWho) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  clients[0]->tell("allreduce c0 1000 float32 sum");
  clients[1]->tell("allreduce c0 1001 float32 sum");
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.code, arcFailedPrecondition) << reply.to_string();
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
    expect_text(reply, "count");
    EXPECT_LT(reply.took, kPrompt);
  }
  // The communicator goes on.
  expect_all_ok(clients, "allreduce c0 1000 float32 sum");
}

TEST_F(NodesFaults, NothingMeetsSomethingIsAMismatch) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  clients[0]->tell("allreduce c0 0 float32 sum");
  clients[1]->tell("allreduce c0 5000000 float32 sum");
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
  }
}

TEST_F(NodesFaults, ATimeoutNamesTheRankAndTheNodeThatDidNotCall) {
  start(2);
  const Clients clients = start_ranks_on({0, 0, 1, 1}, "init 1500");
  clients[0]->tell("allreduce c0 1000 float32 sum");
  clients[1]->tell("allreduce c0 1000 float32 sum");
  clients[2]->tell("allreduce c0 1000 float32 sum");
  for (std::size_t i = 0; i < 3; ++i) {
    const Reply reply = clients[i]->hear();
    EXPECT_FALSE(reply.ok());
    EXPECT_EQ(reply.rank, 3) << reply.to_string();
    EXPECT_LT(reply.took, milliseconds(1500) + kSlack);
  }
}

TEST_F(NodesFaults, ADeadClientIsHeardOfOnAllNodesAtOnce) {
  start(3);
  const Clients clients = start_ranks_on({0, 1, 2, 2});
  for (std::size_t i = 0; i < 3; ++i) clients[i]->tell("allreduce c0 1000 float32 sum");
  ::usleep(100'000);
  clients[3]->child().kill();
  for (std::size_t i = 0; i < 3; ++i) {
    const Reply reply = clients[i]->hear();
    EXPECT_EQ(reply.reason, arcReasonRemoteDied) << reply.to_string();
    EXPECT_EQ(reply.rank, 3) << reply.to_string();
    EXPECT_LT(reply.took, kPrompt);
  }
}

TEST_F(NodesFaults, AnAbortedCommunicatorEndsOnAllNodes) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  clients[0]->tell("allreduce c0 1000 float32 sum");
  ::usleep(100'000);
  clients[1]->expect_ok("abort c0");
  const Reply reply = clients[0]->hear();
  EXPECT_EQ(reply.reason, arcReasonRemoteAborted) << reply.to_string();
  EXPECT_LT(reply.took, kPrompt);
}

TEST_F(NodesFaults, AKilledDaemonIsNamedAndTheOthersGoOnWithoutItAndWithItsSuccessor) {
  start(3);
  const Clients clients = start_ranks_on({0, 1, 2});
  for (const auto& client : clients) client->tell("loop c0 50000 float32 sum n=100000000");
  ::usleep(300'000);
  node(1).kill();
  for (const std::size_t i : {0u, 2u}) {
    const Reply reply = clients[i]->hear();
    EXPECT_TRUE(reply.reason == arcReasonRemoteDied || reply.reason == arcReasonRevoked)
        << reply.to_string();
    expect_text(reply, "node1");
    EXPECT_LT(reply.took, milliseconds(2000) + kPrompt);
  }
  EXPECT_EQ(clients[1]->hear().reason, arcReasonDaemonLost);
  const Clients pair = start_ranks_on({0, 2});
  expect_all_ok(pair, "allreduce c0 100003 float32 sum");
  start_node(1);
  expect_acquainted();
  expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 100003 float32 sum");
}

TEST_F(NodesFaults, AFrozenDaemonIsDeadAfterItsTimeoutAndComesBack) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  expect_all_ok(clients, "allreduce c0 100003 float32 sum");
  clients[0]->tell("allreduce c0 1000 float32 sum");
  node(1).freeze();
  const Reply reply = clients[0]->hear();
  EXPECT_FALSE(reply.ok());
  expect_text(reply, "node1");
  EXPECT_LT(reply.took, milliseconds(2000) + kPrompt);
  node(1).thaw();
  expect_acquainted();
  const Clients again = start_ranks_on({0, 1});
  expect_all_ok(again, "allreduce c0 100003 float32 sum");
}

TEST_F(NodesFaults, ADaemonThatStopsInGoodOrderEndsItsCommunicatorsOnAllNodes) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  clients[0]->tell("allreduce c0 1000 float32 sum");
  ::usleep(100'000);
  node(1).stop();
  const Reply reply = clients[0]->hear();
  EXPECT_FALSE(reply.ok());
  expect_text(reply, "node1");
  EXPECT_LT(reply.took, milliseconds(10'000));
}

// Nothing but their calls connects them: no communicator has needed a link.
TEST_F(NodesFaults, ADaemonThatStopsSaysSoAndOneThatIsKilledIsFoundDeadByItsTimeout) {
  start(3, {{"net.peer_timeout_ms", "4000"}});
  const auto why_of = [this](std::size_t peer) {
    const nlohmann::json seen = net(0);
    for (const nlohmann::json& one : seen.at("peers")) {
      if (one.at("address") == address(peer) && one.at("state") == "unreachable")
        return one.at("why").get<std::string>();
    }
    return std::string();
  };
  node(1).stop();
  EXPECT_TRUE(eventually(milliseconds(1000), [&] { return !why_of(1).empty(); })) << net(0);
  EXPECT_NE(node(0).log().find("node1 (" + address(1) + ") stops: it was shut down in good order"),
            std::string::npos);
  node(2).kill();
  ::usleep(1'500'000);
  EXPECT_EQ(why_of(2), "") << "it may come back";
  EXPECT_TRUE(eventually(milliseconds(5000), [&] { return !why_of(2).empty(); })) << net(0);
  EXPECT_NE(node(0).log().find("(net.peer_timeout_ms)"), std::string::npos);
}

// tests/rdma_vm has such a way: 200 ms in each direction, and of a hundred packets five are lost.
TEST_F(NodesFaults, AFarAndLossyWayIsTakenForNobodysDeathAndItsRetransmissionsAreTold) {
  start(2, {{"net.peer_timeout_ms", "5000"}});  // the default
  const Clients clients = start_ranks_on({0, 1}, "init 60000");
  const auto link = [this] { return net(0).at("links").at(0); };
  const auto retransmits = [&] { return link().at("retransmits").get<std::uint64_t>(); };
  if (link().at("round_trip_s").get<double>() < 0.3)
    GTEST_SKIP() << "packets between the nodes are neither late nor lost here";
  const std::uint64_t before = retransmits();
  // The link is as old as twice the time after which the silent are dead: it was never made anew.
  // Which packets are lost is chance: of an operation's few each has one chance in twenty.
  std::uint64_t age_ms = 0;
  while (age_ms < 10'000 || (retransmits() == before && age_ms < 60'000)) {
    expect_all_ok(clients, "allreduce c0 100003 float32 sum");
    for (const std::size_t i : {0u, 1u}) {
      for (const auto& peer : net(i).at("peers"))
        EXPECT_NE(peer.at("state"), "unreachable") << peer;
    }
    const auto now_ms = link().at("age_ms").get<std::uint64_t>();
    ASSERT_GT(now_ms, age_ms) << node(0).log();
    age_ms = now_ms;
  }
  EXPECT_GT(retransmits(), before) << net(0);
  EXPECT_TRUE(eventually(milliseconds(5000), [&] {
    return Metrics::scrape(node(0)).value("arcomm_link_retransmits_total") > 0;
  }));
  for (const std::size_t i : {0u, 1u})
    EXPECT_EQ(node(i).log().find("has not answered for"), std::string::npos) << node(i).log();
}

TEST_F(NodesFaults, AWrongTokenIsToldOnBothSidesAndJoinsNobody) {
  start(1);
  DaemonProcess::Options options;
  ScratchFolder folder;
  write_text(folder / "token", "another token than the others have\n");
  ::chmod((folder / "token").c_str(), 0600);
  options.settings = {{"net.peers", address(0) + "," + address(1)},
                      {"net.listen", address(1)},
                      {"net.name", "stranger"},
                      {"net.token_file", folder / "token"}};
  const auto stranger = DaemonProcess::start(std::move(options));
  ASSERT_NE(stranger, nullptr);
  EXPECT_TRUE(stranger->wait_for_log("token", milliseconds(8000))) << stranger->log();
  EXPECT_TRUE(node(0).wait_for_log("token", milliseconds(8000))) << node(0).log();
  stranger->stop();
}

}  // namespace
}  // namespace arcomm::support
