// AllReduce with a codec between real processes, held against the golden codec.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "tests/integration/golden_result.h"
#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr const char* kTypes[] = {"float16", "bfloat16", "float32"};

std::string words(const std::string& type, const std::string& op, std::size_t count, Codec codec,
                  const std::string& options = "") {
  return "allreduce c0 " + std::to_string(count) + " " + type + " " + op +
         " codec=" + std::to_string(static_cast<int>(codec)) + options;
}

class AllReduceCodecs : public NodeTest {
 protected:
  static void expect_golden(const Clients& clients, const std::string& type, const std::string& op,
                            std::size_t count, Codec codec, const std::string& options = "") {
    const auto ranks = static_cast<std::uint32_t>(clients.size());
    const std::string want = golden_result(type, op, count, ranks, codec);
    const std::string line = words(type, op, count, codec, options);
    for (const Reply& reply : ask_all(clients, line)) {
      EXPECT_TRUE(reply.ok()) << line << ": " << reply.to_string();
      EXPECT_EQ(reply.value, want) << line << ": not the golden codec's bits";
    }
  }
};

TEST_F(AllReduceCodecs, GivesTheGoldenCodecsBitsForEveryCodecTypeAndOperation) {
  start();
  const Clients clients = start_ranks(node(), 2);
  std::size_t count = 1003;
  for (unsigned codec = 0; codec < kCodecs; ++codec) {
    if (static_cast<Codec>(codec) == Codec::None) continue;
    for (const char* type : kTypes) {
      for (const char* op : {"sum", "avg"})
        expect_golden(clients, type, op, ++count, static_cast<Codec>(codec));
    }
  }
}

// Cut into requests and, at 200,000 elements, into tiles.
TEST_F(AllReduceCodecs, KeepsItsBlocksHoweverLargeItIsAndWhereverItsMemoryIs) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  const Clients clients = start_ranks(node(), 3);
  for (const std::size_t count : {0u, 1u, 31u, 33u, 200'003u}) {
    expect_golden(clients, "float32", "sum", count, Codec::Q4);
    expect_golden(clients, "bfloat16", "avg", count, Codec::Q6Rotated, " place=in mem=alloc");
    expect_golden(clients, "float16", "sum", count, Codec::Fp8, " mem=odd recv=shared");
  }
}

TEST_F(AllReduceCodecs, IsTiledWhereItIsLarge) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_golden(clients, "float32", "sum", 1'000'003, Codec::Q8, " mem=alloc");
}

TEST_F(AllReduceCodecs, RefusesByNameWhatACodecDoesNotServeAndGoesOn) {
  start();
  const Clients clients = start_ranks(node(), 2);
  const auto expect_refusal = [&](const std::string& line, const std::string& text) {
    for (const Reply& reply : ask_all(clients, line)) {
      EXPECT_EQ(reply.code, arcInvalidArgument) << line << ": " << reply.to_string();
      EXPECT_NE(reply.message.find(text), std::string::npos) << reply.to_string();
    }
  };
  expect_refusal(words("int32", "sum", 64, Codec::Q8),
                 "codec q8 does not serve sum of int32: codecs serve sum and avg of float16, "
                 "bfloat16 and float32");
  expect_refusal(words("float32", "max", 64, Codec::Q6Rotated),
                 "codec q6_rotated does not serve max of float32");
  expect_refusal("allreduce c0 64 float32 sum codec=8", "codec is 8; the codecs are 0 (none) to 7");
  expect_golden(clients, "float32", "sum", 64, Codec::Q8);
}

// It never applies silently: trace and metrics name it.
TEST_F(AllReduceCodecs, IsNamedInTheTraceAndCountedByName) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_golden(clients, "float16", "sum", 100, Codec::Q4Rotated);
  expect_all_ok(clients, "allreduce c0 20000 float16 sum");  // in its calls it has no record
  const nlohmann::json records = arctl_json(node(), {"trace"})["records"];
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0]["codec"], "q4_rotated");
  EXPECT_EQ(records[3]["codec"], "none");
  const std::string text = arctl(node(), {"trace"}).output;
  EXPECT_NE(text.find("sum float16 q4_rotated"), std::string::npos) << text;
  EXPECT_EQ(scrape().value("arcomm_coded_operations_total", {"q4_rotated"}), 2);
  EXPECT_EQ(scrape().value("arcomm_coded_operations_total", {"q8"}), 0);
  EXPECT_EQ(arctl(node(), {"metrics"}).output.find("arcomm_coded_operations_total{codec=\"none\"}"),
            std::string::npos);
}

TEST_F(AllReduceCodecs, IsNamedByArctlCommsWhereARankWaitsWithIt) {
  start();
  const Clients clients = start_ranks(node(), 2);
  clients[0]->tell(words("float32", "sum", 64, Codec::Q6));
  std::string text;
  const auto until = std::chrono::steady_clock::now() + kPrompt;
  while (text.find("with codec q6") == std::string::npos &&
         std::chrono::steady_clock::now() < until) {
    text = arctl(node(), {"comms"}).output;
  }
  EXPECT_NE(text.find("with codec q6"), std::string::npos) << text;
  clients[1]->tell(words("float32", "sum", 64, Codec::Q6));
  for (const auto& client : clients) EXPECT_TRUE(client->hear().ok());
}

}  // namespace
}  // namespace arcomm::support
