// AllReduce between real daemons: every type and operation, numbers of nodes and of ranks on each,
// sizes, kinds of memory, each algorithm.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/integration/golden_result.h"
#include "tests/integration/nodes/cluster_test.h"

namespace arcomm::support {
namespace {

constexpr const char* kTypes[] = {"float16", "bfloat16", "float32", "float64", "int8",
                                  "uint8",   "int32",    "uint32",  "int64",   "uint64"};
constexpr const char* kOperations[] = {"sum", "prod", "min", "max", "avg"};

class NodesAllReduce : public ClusterTest {
 protected:
  // What all have.
  static std::string expect_same_bits(const Clients& clients, const std::string& line) {
    std::set<std::string> hashes;
    for (const Reply& reply : ask_all(clients, line)) {
      EXPECT_TRUE(reply.ok()) << line << ": " << reply.to_string();
      hashes.insert(reply.value);
    }
    EXPECT_EQ(hashes.size(), 1u) << line << ": the ranks hold different bits";
    return hashes.empty() ? std::string() : *hashes.begin();
  }
};

TEST_F(NodesAllReduce, GivesTheSameRightBitsOnAllNodesForEveryTypeAndOperation) {
  start(2);
  const Clients clients = start_ranks_on({0, 0, 1});
  for (const char* type : kTypes) {
    for (const char* operation : kOperations)
      expect_same_bits(clients, std::string("allreduce c0 1003 ") + type + " " + operation);
  }
}

// Between two nodes with a rank each every element is quantized once, as between ranks of one.
TEST_F(NodesAllReduce, GivesTheGoldenCodecsBitsForEveryCodec) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  for (const Codec codec : kRealCodecs) {
    const std::string asked = " codec=" + std::to_string(static_cast<int>(codec));
    for (const std::size_t count : {1u, 1003u, 300'001u}) {
      EXPECT_EQ(expect_same_bits(clients,
                                 "allreduce c0 " + std::to_string(count) + " bfloat16 avg" + asked),
                golden_result("bfloat16", "avg", count, 2, codec))
          << text_of(codec) << " x " << count;
    }
  }
  expect_same_bits(clients, "allreduce c0 64 float32 sum");
}

TEST_F(NodesAllReduce, GpuCodecsOffSayNothingOfHosts) {
  start(2, {{"gpu.codecs", "false"}});
  const Clients clients = start_ranks_on({0, 1});
  EXPECT_EQ(expect_same_bits(clients, "allreduce c0 1003 bfloat16 sum codec=3"),
            golden_result("bfloat16", "sum", 1003, 2, Codec::Q6));
}

TEST_F(NodesAllReduce, ADefaultCodecServesSeveralNodesAndArctlSaysWhatBecomesOfIt) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  const std::string id = clients[0]->expect_ok("id");
  for (std::size_t rank = 0; rank < clients.size(); ++rank)
    clients[rank]->tell("comm c1 2 " + id + " " + std::to_string(rank) + " codec=2");
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_TRUE(reply.ok()) << reply.to_string();
  }
  EXPECT_EQ(expect_same_bits(clients, "allreduce c1 1003 bfloat16 sum"),
            golden_result("bfloat16", "sum", 1003, 2, Codec::Q8));
  std::string becomes;
  const nlohmann::json shown = arctl_json(node(0), {"comms"});
  for (const nlohmann::json& communicator : shown["communicators"])
    becomes += communicator.value("default_codec_becomes", "");
  EXPECT_NE(becomes.find("q8 at every size, as asked: 8.5 bits"), std::string::npos) << shown;
}

TEST_F(NodesAllReduce, SendsFewerBytesWithACodecAndSaysSo) {
  start(3, {{"net.algorithm", "direct"}});
  const Clients clients = start_ranks_on({0, 0, 1, 2});
  constexpr std::uint64_t kCount = 300'000;
  const auto sent_by_one = [&](const std::string& options) {
    expect_same_bits(clients, "allreduce c0 " + std::to_string(kCount) + " float32 sum" + options);
    const nlohmann::json trace = arctl_json(node(1), {"trace", "--last", "1"});
    return trace["records"][0]["network"]["sent_bytes"].get<double>();
  };
  const double plain = sent_by_one(""), coded = sent_by_one(" codec=4");
  EXPECT_NEAR(plain, kCount * 4 * 4.0 / 3, plain / 100);
  EXPECT_NEAR(coded, plain * 4.5 / 32, coded / 100);
  const std::string shown = arctl(node(1), {"trace", "--last", "1"}).output;
  const std::size_t between = shown.find("Between nodes");
  ASSERT_NE(between, std::string::npos) << shown;
  EXPECT_NE(shown.find("sum float32 q4", between), std::string::npos) << shown;
}

TEST_F(NodesAllReduce, ShowsEachStepBetweenTheNodesInTheTrace) {
  start(2);
  const Clients clients = start_ranks_on({0, 0, 1});
  expect_same_bits(clients, "allreduce c0 100000 float32 sum");
  for (std::size_t i = 0; i < nodes(); ++i) {
    const nlohmann::json trace = arctl_json(node(i), {"trace", "--last", "1"});
    const nlohmann::json& record = trace["records"][0];
    const nlohmann::json& network = record["network"];
    ASSERT_TRUE(network.is_object()) << trace;
    EXPECT_EQ(network["nodes"], 2);
    EXPECT_EQ(network["sent_bytes"], 400'000);
    EXPECT_EQ(network["received_bytes"], 400'000);
    for (const char* step : {"posted_ns", "sent_ns", "arrived_ns"}) {
      EXPECT_GE(network[step], record["agreed_ns"]) << step;
      EXPECT_LE(network[step], record["done_ns"]) << step;
    }
  }
}

TEST_F(NodesAllReduce, TakesAnySizeFromNothingToManySegments) {
  start(3, {{"op.segment_bytes", "1MiB"}});
  const Clients clients = start_ranks_on({0, 1, 2});
  for (const std::size_t count :
       {0u, 1u, 2u, 3u, 17u, 255u, 1024u, 4097u, 16385u, 65537u, 262143u, 262145u, 1000003u}) {
    for (const char* type : {"float32", "uint8", "float16"})
      expect_same_bits(clients, "allreduce c0 " + std::to_string(count) + " " + type + " sum");
  }
}

TEST_F(NodesAllReduce, TakesUnequalNumbersOfRanksInAnyOrderOfNodes) {
  start(3);
  for (const std::vector<std::size_t>& placed :
       {std::vector<std::size_t>{0, 1, 1, 2, 2, 2}, {2, 1, 0, 2}, {1, 0, 1, 0}, {2, 0}}) {
    const Clients clients = start_ranks_on(placed);
    for (const char* line :
         {"allreduce c0 65537 bfloat16 avg", "allreduce c0 300007 float32 sum place=in",
          "allreduce c0 5 int32 max", "allreduce c0 65537 float16 sum n=20"})
      expect_same_bits(clients, line);
    expect_all_ok(clients, "finalize");
  }
}

TEST_F(NodesAllReduce, GivesTheSameBitsByExchangeAndDirectAndRightSumsByRing) {
  std::map<std::string, std::string> by_exchange;  // line: the result
  for (const std::string algorithm : {"exchange", "direct", "ring"}) {
    start(4, {{"net.algorithm", algorithm}, {"net.order", "ring"}});
    const Clients clients = start_ranks_on({0, 1, 2, 3});
    for (const std::size_t count : {1u, 3u, 4u, 1001u, 40000u, 1000003u}) {
      for (const char* what : {" float32 sum", " bfloat16 sum place=in"}) {
        const std::string line = "allreduce c0 " + std::to_string(count) + what;
        const std::string bits = expect_same_bits(clients, line);
        if (algorithm == "exchange") by_exchange[line] = bits;
        if (algorithm == "direct") {
          EXPECT_EQ(bits, by_exchange[line]) << line;
        }
      }
    }
    expect_all_ok(clients, "finalize");
    for (std::size_t i = 0; i < nodes(); ++i) node(i).stop();
  }
  expect_good_as_new_ = false;  // each algorithm had nodes of its own, which have stopped
}

TEST_F(NodesAllReduce, TakesEveryMixOfMemoryInPlaceAndOutOfPlace) {
  start(2, {{"net.streams", "3"}});  // with threads, however few cores there are
  const Clients clients = start_ranks_on({0, 1});
  for (const char* send : {"heap", "odd", "alloc", "registered", "shared"}) {
    for (const char* receive : {"heap", "odd", "alloc"}) {
      expect_same_bits(
          clients, std::string("allreduce c0 50001 int32 max mem=") + send + " recv=" + receive);
    }
    expect_same_bits(clients, std::string("allreduce c0 50001 float64 sum place=in mem=") + send);
  }
}

TEST_F(NodesAllReduce, RunsManyOperationsInARow) {
  start(2);
  const Clients clients = start_ranks_on({0, 1});
  expect_all_ok(clients, "allreduce c0 257 float32 sum n=3000", milliseconds(60000));
  expect_all_ok(clients, "allreduce c0 100003 float32 sum n=300", milliseconds(60000));
}

TEST_F(NodesAllReduce, ServesCommunicatorsOfOneNodeWithoutTheOthers) {
  start(2);
  node(1).freeze();
  Clients clients;
  for (int i = 0; i < 2; ++i) clients.push_back(start_client(0));
  form_communicator(clients, "c0");
  expect_all_ok(clients, "allreduce c0 100003 float32 sum n=10");
  expect_all_ok(clients, "finalize");
  node(1).thaw();
}

}  // namespace
}  // namespace arcomm::support
