// Communicators over real daemons come into being: ids, places to meet, who is named when they do
// not, rebuilds with other ranks and nodes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>

#include "proto/meeting_address.h"
#include "tests/integration/nodes/cluster_test.h"

namespace arcomm::support {
namespace {

class NodesForm : public ClusterTest {
 protected:
  static std::string address_in(const std::string& id) {
    std::array<std::byte, 128> bytes{};
    for (std::size_t i = 0; i < bytes.size() && 2 * i + 1 < id.size(); ++i)
      bytes[i] = static_cast<std::byte>(std::stoi(id.substr(2 * i, 2), nullptr, 16));
    return std::string(meeting_address(bytes));
  }
  std::string plain_id() {
    std::string id;
    for (int i = 0; i < 256; ++i) id += "0123456789abcdef"[random_() % 16];
    return id;
  }
  // Rank by position, of `ranks`.
  static void join(const Clients& clients, const std::string& id, std::size_t ranks) {
    for (std::size_t i = 0; i < clients.size(); ++i) tell_join(*clients[i], id, ranks, i);
    for (const auto& client : clients) {
      const Reply reply = client->hear();
      EXPECT_TRUE(reply.ok()) << reply.to_string();
    }
  }
  static void tell_join(ClientProcess& client, const std::string& id, std::size_t ranks,
                        std::size_t rank) {
    client.tell("comm c0 " + std::to_string(ranks) + " " + id + " " + std::to_string(rank));
  }
  Clients clients_on(const std::vector<std::size_t>& nodes, std::string_view init = "init") {
    Clients clients;
    for (const std::size_t node : nodes) clients.push_back(start_client(node, init));
    return clients;
  }
  static void expect_text(const Reply& reply, const std::string& text) {
    EXPECT_NE(reply.message.find(text), std::string::npos) << reply.to_string();
  }
  nlohmann::json communicator(std::size_t index) {
    const nlohmann::json all = arctl_json(node(index), {"comms"}).at("communicators");
    return all.empty() ? nlohmann::json() : all.at(0);
  }

  std::mt19937 random_{static_cast<unsigned>(::getpid())};
};

TEST_F(NodesForm, AnIdCarriesTheAddressOfTheNodeThatMadeItAttachedOrNot) {
  start(2);
  auto client = ClientProcess::start(node(1));
  EXPECT_EQ(address_in(client->expect_ok("id")), address(1));
  client->expect_ok("init");
  EXPECT_EQ(address_in(client->expect_ok("id")), address(1));
  const Clients clients = clients_on({0, 1});
  const std::string id = clients[1]->expect_ok("id");
  join(clients, id, 2);
  expect_all_ok(clients, "allreduce c0 1000 float32 sum");
}

TEST_F(NodesForm, ARankThatIsInUseOnAnotherNodeIsRefusedAtOnceNamingBothNodes) {
  start(3);
  Clients clients = clients_on({0, 1, 2});
  const std::string id = clients[0]->expect_ok("id");
  tell_join(*clients[0], id, 2, 0);
  tell_join(*clients[1], id, 2, 1);
  EXPECT_TRUE(clients[0]->hear().ok());
  EXPECT_TRUE(clients[1]->hear().ok());
  tell_join(*clients[2], id, 2, 1);
  const Reply reply = clients[2]->hear();
  EXPECT_EQ(reply.code, arcAlreadyExists) << reply.to_string();
  EXPECT_EQ(reply.rank, 1) << reply.to_string();
  expect_text(reply, "in use on node node1");
  expect_text(reply, "node node2");
  EXPECT_LT(reply.took, kPrompt);
  clients.pop_back();
  expect_all_ok(clients, "allreduce c0 1000 float32 sum");
}

TEST_F(NodesForm, PlainIdsMeetAtWhicheverNode) {
  start(3);
  const Clients clients = clients_on({2, 0, 1, 0});
  for (int i = 0; i < 12; ++i) {
    join(clients, plain_id(), clients.size());
    expect_all_ok(clients, "allreduce c0 1000 float32 sum");
    expect_all_ok(clients, "destroy c0");
  }
}

TEST_F(NodesForm, AnIdThatNamesNoPeerStillServesTheRanksOfOneNode) {
  start(2);
  std::string id = plain_id();
  std::string strange = "4152434e4f444531";  // ARCNODE1
  strange += "0e";                           // 14 bytes
  for (const char c : std::string("203.0.113.9:99"))
    strange += std::string(1, "0123456789abcdef"[c >> 4]) + "0123456789abcdef"[c & 15];
  id.replace(128, strange.size(), strange);
  ASSERT_EQ(address_in(id), "203.0.113.9:99");
  const Clients clients = clients_on({0, 0});
  join(clients, id, 2);
  const Clients apart = clients_on({0, 1}, "init 700");
  id[0] = id[0] == '0' ? '1' : '0';
  for (std::size_t i = 0; i < 2; ++i) tell_join(*apart[i], id, 2, i);
  for (const auto& client : apart) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.code, arcDeadlineExceeded) << reply.to_string();
    expect_text(reply, "203.0.113.9:99");
    expect_text(reply, "net.peers");
  }
}

TEST_F(NodesForm, ATimeoutNamesTheMissingRanksAndWhatEachNodeHasCalled) {
  start(3);
  const Clients clients = clients_on({0, 1, 1}, "init 1500");
  const std::string id = clients[0]->expect_ok("id");
  tell_join(*clients[0], id, 5, 0);
  tell_join(*clients[1], id, 5, 2);
  tell_join(*clients[2], id, 5, 4);
  EXPECT_TRUE(eventually(kPrompt, [&] {
    return communicator(1).value("diagnosis", "").find("ranks 1, 3 of 5") != std::string::npos &&
           communicator(1).value("diagnosis", "").find("node0") != std::string::npos;
  })) << communicator(1).dump();
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.code, arcDeadlineExceeded) << reply.to_string();
    expect_text(reply, "ranks 1, 3 of 5 have not called");
    expect_text(reply, "node node0 (" + address(0) + ") has called rank 0");
    expect_text(reply, "node node1 (" + address(1) + ") has called ranks 2, 4");
    EXPECT_EQ(reply.rank, 1);
    EXPECT_LT(reply.took, milliseconds(1500) + kSlack);
  }
}

TEST_F(NodesForm, NodesThatDisagreeAboutTheNumberOfRanksHearItOnBothSides) {
  start(2);
  const Clients clients = clients_on({0, 1});
  const std::string id = clients[0]->expect_ok("id");
  tell_join(*clients[0], id, 2, 0);
  tell_join(*clients[1], id, 3, 1);
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
    expect_text(reply, "node0");
    expect_text(reply, "node1");
    EXPECT_LT(reply.took, kPrompt);
  }
}

TEST_F(NodesForm, AClientThatDiesWhileItWaitsIsNamedWithItsNode) {
  start(2);
  const Clients clients = clients_on({0, 1});
  const std::string id = clients[0]->expect_ok("id");
  tell_join(*clients[0], id, 3, 0);
  tell_join(*clients[1], id, 3, 2);
  EXPECT_TRUE(eventually(kPrompt, [&] {
    return communicator(0).value("diagnosis", "").find("node1") != std::string::npos ||
           communicator(1).value("diagnosis", "").find("node0") != std::string::npos;
  }));
  clients[1]->child().kill();
  const Reply reply = clients[0]->hear();
  EXPECT_EQ(reply.reason, arcReasonRemoteDied) << reply.to_string();
  EXPECT_EQ(reply.rank, 2);
  expect_text(reply, "node1");
  expect_text(reply, "pid " + std::to_string(clients[1]->pid()));
  EXPECT_LT(reply.took, 2 * kPrompt);
}

TEST_F(NodesForm, ANodeThatIsKilledWhileOthersWaitIsNamedWhereverTheyMeet) {
  start(3);
  for (const std::size_t maker : {0u, 1u}) {
    const Clients clients = clients_on({0, 1, 2});
    const std::string id = clients[maker]->expect_ok("id");
    for (std::size_t i = 0; i < 3; ++i) tell_join(*clients[i], id, 4, i);
    ::usleep(300'000);
    node(1).kill();
    for (const std::size_t i : {0u, 2u}) {
      const Reply reply = clients[i]->hear();
      EXPECT_EQ(reply.reason, arcReasonRemoteDied) << reply.to_string();
      expect_text(reply, "node1");
      EXPECT_LT(reply.took, milliseconds(2300) + kPrompt);
    }
    start_node(1);
    expect_acquainted();
  }
}

TEST_F(NodesForm, ARebuildIsTheNextEpochEverywhereThoughRanksMoveAndANodeLeaves) {
  start(3);
  const Clients clients = clients_on({0, 1, 2});
  const std::string id = clients[0]->expect_ok("id");
  join(clients, id, 3);
  for (const auto& client : clients) EXPECT_EQ(client->expect_ok("epoch c0"), "1");
  clients[2]->child().kill();
  for (const std::size_t i : {0u, 1u}) {
    const Reply reply = clients[i]->ask("allreduce c0 1000 float32 sum");
    EXPECT_EQ(reply.rank, 2) << reply.to_string();
  }
  // What was rank 2 of node 2 is on node 1 from now on.
  const auto moved = start_client(1);
  clients[0]->tell("rebuild c0");
  clients[1]->tell("rebuild c0");
  tell_join(*moved, id, 3, 2);
  for (ClientProcess* client : {clients[0].get(), clients[1].get(), moved.get()}) {
    const Reply reply = client->hear();
    ASSERT_TRUE(reply.ok()) << reply.to_string();
    EXPECT_EQ(client->expect_ok("epoch c0"), "2");
  }
  for (ClientProcess* client : {clients[0].get(), clients[1].get(), moved.get()})
    client->tell("allreduce c0 1000 float32 sum");
  for (ClientProcess* client : {clients[0].get(), clients[1].get(), moved.get()})
    EXPECT_TRUE(client->hear().ok());
  const nlohmann::json seen = communicator(1);
  ASSERT_EQ(seen.at("members").size(), 3u) << seen.dump();
  EXPECT_EQ(seen.at("members").at(0).at("node"), "node0");
  EXPECT_EQ(seen.at("members").at(2).at("node"), "node1");
  EXPECT_EQ(seen.at("epoch"), 2);
}

TEST_F(NodesForm, ManyCommunicatorsFormAtOnce) {
  start(3);
  constexpr std::size_t kGroups = 12;
  std::vector<Clients> groups;
  std::vector<std::string> ids;
  for (std::size_t group = 0; group < kGroups; ++group) {
    groups.push_back(clients_on({0, 1, 2}));
    ids.push_back(groups.back()[group % 3]->expect_ok("id"));
  }
  for (int round = 0; round < 5; ++round) {
    for (std::size_t group = 0; group < kGroups; ++group) {
      for (std::size_t i = 0; i < 3; ++i) tell_join(*groups[group][i], ids[group], 3, i);
    }
    milliseconds longest{0};
    for (const Clients& clients : groups) {
      for (const auto& client : clients) {
        const Reply reply = client->hear();
        EXPECT_TRUE(reply.ok()) << reply.to_string();
        longest = std::max(longest, reply.took);
      }
    }
    RecordProperty("longest_ms_" + std::to_string(round), static_cast<int>(longest.count()));
    for (const Clients& clients : groups) expect_all_ok(clients, "allreduce c0 1000 float32 sum");
    for (const Clients& clients : groups) expect_all_ok(clients, "destroy c0");
  }
}

}  // namespace
}  // namespace arcomm::support
