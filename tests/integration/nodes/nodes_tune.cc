// What daemons measure of the ways between them, and what they do by it.
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "tests/integration/golden_result.h"
#include "tests/integration/nodes/cluster_test.h"

namespace arcomm::support {
namespace {

class NodesTune : public ClusterTest {};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(NodesTune, MeasuredLinksAreKeptNamedAndRefusedWhereTheyDoNotHold) {
  start(3);
  const nlohmann::json dry = arctl_json(node(0), {"tune", "--network", "--dry-run"});
  EXPECT_EQ(dry.at("saved_as"), "");
  ASSERT_EQ(dry.at("links").size(), 2u) << dry;
  const nlohmann::json before = arctl_json(node(0), {"tune", "--explain", "1M", "--nodes", "3"});
  EXPECT_TRUE(holds(before.dump(), "no link was measured")) << before;

  const nlohmann::json tuned = arctl_json(node(0), {"tune", "--network"});
  ASSERT_EQ(tuned.at("links").size(), 2u) << tuned;
  for (const nlohmann::json& link : tuned.at("links")) {
    EXPECT_EQ(link.at("why"), "");
    EXPECT_GT(link.at("latency_us").get<double>(), 0);
    EXPECT_GT(link.at("bytes_per_second").get<std::uint64_t>(), 1'000'000u);
    EXPECT_GT(link.at("with_copies").get<std::uint64_t>(), 0u);
  }
  const auto explained = [this] {
    return arctl_json(node(0), {"tune", "--explain", "1M", "--nodes", "3"}).dump();
  };
  EXPECT_TRUE(holds(explained(), "measured with node")) << explained();
  // The figures are in force: communicators form and give the right results.
  const Clients clients = start_ranks_on({0, 1, 2});
  expect_all_ok(clients, "allreduce c0 300007 float32 sum");
  expect_all_ok(clients, "finalize");

  // A restart finds them.
  const std::string file = tuned.at("saved_as");
  ASSERT_TRUE(std::filesystem::exists(file)) << file;
  node(0).stop();
  start_node(0);
  EXPECT_TRUE(holds(explained(), "measured with node")) << explained();
  // Of a peer that is in no list they are refused by line and name.
  node(0).stop();
  std::string text = read_text(file);
  text.replace(text.find(address(1)), address(1).size(), "10.9.9.9:7400");
  write_text(file, text);
  start_node(0);
  EXPECT_TRUE(holds(explained(), "no link was measured")) << explained();
  const std::string status = arctl_json(node(0), {"status"}).dump();
  EXPECT_TRUE(holds(status, "peer \\\"10.9.9.9:7400\\\" is not in net.peers")) << status;
  EXPECT_TRUE(holds(status, ".network.toml:")) << status;
}

// By what was measured where the communicator meets, on all its nodes: with the link said to be a
// slow one an operation of an error class travels encoded, and a short one does not.
TEST_F(NodesTune, AnErrorClassGetsACodecWhereTheMeasuredLinkIsSlowOnAllNodesAlike) {
  start(2);
  constexpr std::size_t kCount = 100'000;
  const std::string line = "allreduce c0 " + std::to_string(kCount) + " float32 sum snr=20";
  const auto codecs = [this] {
    std::string seen;
    for (std::size_t i = 0; i < nodes(); ++i) {
      const nlohmann::json record = arctl_json(node(i), {"trace", "--last", "1"})["records"][0];
      EXPECT_EQ(record["of_error_class"], true) << record;
      seen += record["codec"].get<std::string>() + " ";
    }
    return seen;
  };
  {
    const Clients clients = start_ranks_on({0, 1});
    expect_all_ok(clients, line);
    EXPECT_EQ(codecs(), "none none ") << "nothing was measured";
    expect_all_ok(clients, "finalize");
  }
  const nlohmann::json tuned = arctl_json(node(0), {"tune", "--network"});
  const std::string file = tuned.at("saved_as");
  node(0).stop();
  std::string text = read_text(file);
  for (const auto& [key, value] :
       {std::pair{"latency_us = ", "30.0"}, {"bytes_per_second = ", "117000000"}}) {
    const std::size_t at = text.find(key) + std::string_view(key).size();
    ASSERT_NE(text.find(key), std::string::npos) << text;
    text.replace(at, text.find('\n', at) - at, value);
  }
  write_text(file, text);
  start_node(0);
  expect_acquainted();

  const Clients clients = start_ranks_on({0, 1});
  const std::string golden = golden_result("float32", "sum", kCount, 2, Codec::Q4);
  for (const Reply& reply : ask_all(clients, line)) {
    EXPECT_TRUE(reply.ok()) << reply.to_string();
    EXPECT_EQ(reply.value, golden);
  }
  EXPECT_EQ(codecs(), "q4 q4 ");
  expect_all_ok(clients, "allreduce c0 1000 float32 sum snr=20");
  EXPECT_EQ(codecs(), "none none ");

  const std::string id = clients[0]->expect_ok("id");
  for (std::size_t rank = 0; rank < clients.size(); ++rank)
    clients[rank]->tell("comm c1 2 " + id + " " + std::to_string(rank) + " snr=20");
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_TRUE(reply.ok()) << reply.to_string();
  }
  for (std::size_t i = 0; i < nodes(); ++i)
    EXPECT_TRUE(holds(arctl(node(i), {"comms"}).output,
                      "default codec: at least 20 dB: q4 from 65536 bytes on"))
        << arctl(node(i), {"comms"}).output;
  expect_all_ok(clients, "finalize");
}

TEST_F(NodesTune, WhoCannotBeMeasuredIsNamedAndTheOthersAreMeasured) {
  start(3);
  expect_good_as_new_ = false;  // one node stays down
  node(2).kill();
  const nlohmann::json tuned =
      arctl_json(node(0), {"tune", "--network", "--peer", address(1), "--peer", address(2)});
  ASSERT_EQ(tuned.at("links").size(), 2u) << tuned;
  EXPECT_EQ(tuned.at("links")[0].at("why"), "");
  EXPECT_NE(tuned.at("links")[1].at("why"), "");
  const ArctlRun wrong = arctl(node(0), {"tune", "--network", "--peer", "10.9.9.9:1"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_TRUE(holds(wrong.errors, "net.peers names no other daemon")) << wrong.errors;
}

TEST_F(NodesTune, WhatIsExplainedBetweenNodesIsThatOfTheDeviceThatWasAskedFor) {
  start(2, {{"net.algorithm", "direct"}});
  const auto explain = [this](const char* device) {
    return arctl_json(node(0), {"tune", "--explain", "1M", "--nodes", "4", "--device", device});
  };
  EXPECT_EQ(explain("host").at("chosen"), "direct");
  const nlohmann::json gpus = explain("gpu");
  EXPECT_EQ(gpus.at("chosen"), "exchange");
  EXPECT_TRUE(holds(gpus.at("text"), "between GPUs")) << gpus;
  EXPECT_TRUE(holds(gpus.at("text"), "net.algorithm")) << gpus;
  const ArctlRun many =
      arctl(node(0), {"tune", "--explain", "1M", "--nodes", "9", "--device", "gpu"});
  EXPECT_NE(many.code, 0);
  EXPECT_TRUE(holds(many.errors, "at most 8 GPUs and nodes")) << many.errors;
}

TEST_F(NodesTune, BenchTellsWhatAStepCostsAndChangesNothing) {
  start(2);
  const nlohmann::json before = arctl_json(node(0), {"tune", "--explain", "1M", "--nodes", "2"});
  const nlohmann::json bench = arctl_json(node(0), {"bench", "--network"});
  ASSERT_EQ(bench.at("links").size(), 1u) << bench;
  const nlohmann::json& link = bench.at("links")[0];
  EXPECT_EQ(link.at("address"), address(1));
  EXPECT_EQ(link.at("why"), "");
  EXPECT_GT(link.at("round_trip_p50_us").get<double>(), 0);
  EXPECT_GE(link.at("round_trip_p99_us").get<double>(), link.at("round_trip_p50_us").get<double>());
  for (const char* way : {"sent_bytes_per_second", "received_bytes_per_second"})
    EXPECT_GT(link.at("with_copies").at(way).get<std::uint64_t>(), 1'000'000u) << way;
  // These daemons serve no GPUs.
  EXPECT_TRUE(bench.at("flags").empty()) << bench;
  EXPECT_TRUE(link.at("flag_to_flag_us").is_null());
  const ArctlRun shown = arctl(node(1), {"bench", "--network", "--peer", address(0)});
  EXPECT_EQ(shown.code, 0) << shown.errors;
  EXPECT_TRUE(holds(shown.output, "message there and back")) << shown.output;
  EXPECT_TRUE(holds(shown.output, "this daemon serves no GPU")) << shown.output;

  const nlohmann::json after = arctl_json(node(0), {"tune", "--explain", "1M", "--nodes", "2"});
  EXPECT_EQ(before, after);
  EXPECT_TRUE(holds(after.dump(), "no link was measured")) << after;
  const Clients clients = start_ranks_on({0, 1});
  expect_all_ok(clients, "allreduce c0 300007 float32 sum");
  expect_all_ok(clients, "finalize");
}

TEST_F(NodesTune, BenchSaysWhatToDoWhereThereIsNobodyToMeasureWith) {
  start(3);
  expect_good_as_new_ = false;  // one node stays down
  node(2).kill();
  const nlohmann::json bench = arctl_json(node(0), {"bench", "--network"});
  ASSERT_EQ(bench.at("links").size(), 2u) << bench;
  EXPECT_EQ(bench.at("links")[0].at("why"), "");
  EXPECT_NE(bench.at("links")[1].at("why"), "");
  const ArctlRun dead = arctl(node(0), {"bench", "--network", "--peer", address(2)});
  EXPECT_NE(dead.code, 0);
  EXPECT_TRUE(holds(dead.errors, address(2))) << dead.errors;
  EXPECT_TRUE(holds(dead.errors, "arctl net")) << dead.errors;
  const ArctlRun unknown = arctl(node(0), {"bench", "--network", "--peer", "10.9.9.9:1"});
  EXPECT_NE(unknown.code, 0);
  EXPECT_TRUE(holds(unknown.errors, "net.peers names no other daemon")) << unknown.errors;
  const ArctlRun longer = arctl(node(0), {"bench", "--network", "--peer", std::string(300, 'x')});
  EXPECT_NE(longer.code, 0);
  EXPECT_TRUE(holds(longer.errors, "the request's peers has 300")) << longer.errors;
}

TEST_F(NodesTune, BenchOfADaemonThatKnowsNoOtherSaysWhereToNameSome) {
  start(1);
  const ArctlRun alone = arctl(node(0), {"bench", "--network"});
  EXPECT_EQ(alone.code, 1);
  EXPECT_TRUE(holds(alone.errors, "name some in net.peers")) << alone.errors;
}

}  // namespace
}  // namespace arcomm::support
