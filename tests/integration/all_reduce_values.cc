// AllReduce over real processes: every type and operation, numbers of ranks, kinds of memory,
// sizes.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr const char* kTypes[] = {"float16", "bfloat16", "float32", "float64", "int8",
                                  "uint8",   "int32",    "uint32",  "int64",   "uint64"};
constexpr const char* kOperations[] = {"sum", "prod", "min", "max", "avg"};

class AllReduce : public NodeTest {};

std::uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string name;
  for (std::uint64_t kilobytes = 0; in >> name >> kilobytes; in.ignore(64, '\n')) {
    if (name == "MemAvailable:") return kilobytes << 10;
  }
  return 0;
}

TEST_F(AllReduce, GivesTheSameRightBitsOnAllRanksForEveryTypeAndOperation) {
  start();
  const Clients clients = start_ranks(node(), 3);
  for (const char* type : kTypes) {
    for (const char* operation : kOperations) {
      const std::string line = std::string("allreduce c0 1003 ") + type + " " + operation;
      std::set<std::string> hashes;
      for (const Reply& reply : ask_all(clients, line)) {
        EXPECT_TRUE(reply.ok()) << line << ": " << reply.to_string();
        hashes.insert(reply.value);
      }
      EXPECT_EQ(hashes.size(), 1u) << line << ": the ranks hold different bits";
    }
  }
}

TEST_F(AllReduce, WorksForOneToEightRanksAndRepeatsBitForBit) {
  start();
  for (const int ranks : {1, 2, 4, 5, 8}) {
    const Clients clients = start_ranks(node(), ranks);
    std::set<std::string> hashes;
    for (int run = 0; run < 3; ++run) {
      for (const Reply& reply : ask_all(clients, "allreduce c0 65537 bfloat16 avg")) {
        EXPECT_TRUE(reply.ok()) << ranks << " ranks: " << reply.to_string();
        hashes.insert(reply.value);
      }
    }
    EXPECT_EQ(hashes.size(), 1u) << ranks
                                 << " ranks: not the same bits on all ranks and in each run";
    expect_all_ok(clients, "finalize");
  }
}

TEST_F(AllReduce, TakesAnySizeFromNothingToManySegments) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "1MiB";
  start(options);
  const Clients clients = start_ranks(node(), 2);
  for (const std::size_t count :
       {0u, 1u, 2u, 3u, 15u, 16u, 17u, 255u, 1024u, 1025u, 262143u, 262144u, 262145u, 1000003u}) {
    for (const char* type : {"float32", "uint8", "float16"}) {
      expect_all_ok(clients, "allreduce c0 " + std::to_string(count) + " " + type + " sum");
    }
  }
}

TEST_F(AllReduce, TakesEveryMixOfMemoryInPlaceAndOutOfPlace) {
  start();
  const Clients clients = start_ranks(node(), 2);
  const char* kinds[] = {"heap", "odd", "alloc", "registered", "shared"};
  for (const char* send : kinds) {
    for (const char* receive : kinds) {
      expect_all_ok(clients,
                    std::string("allreduce c0 5001 int32 max mem=") + send + " recv=" + receive);
      expect_all_ok(clients,
                    std::string("allreduce c0 10007 int32 min mem=") + send + " recv=" + receive);
    }
    expect_all_ok(clients, std::string("allreduce c0 5001 float64 sum place=in mem=") + send);
  }
  // Ranks need not agree on where their memory comes from.
  clients[0]->tell("allreduce c0 70001 float32 sum mem=alloc");
  clients[1]->tell("allreduce c0 70001 float32 sum mem=odd place=in");
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_TRUE(reply.ok()) << reply.to_string();
  }
}

TEST_F(AllReduce, CrossesTwoToThe31BytesWithoutLosingAnElement) {
  const std::size_t count = (std::size_t{1} << 31) + 4099;
  if (available_memory() < 6 * count) GTEST_SKIP() << "needs 13 GB of free memory";
  start();
  // One rank's memory is enough to cross every 32-bit length; two ranks would need twice that.
  const Clients clients = start_ranks(node(), 1, "init 100000");
  const Reply reply =
      clients[0]->ask("allreduce c0 " + std::to_string(count) + " int8 sum place=in mem=alloc",
                      milliseconds(100000));
  EXPECT_TRUE(reply.ok()) << reply.to_string();
}

TEST_F(AllReduce, CrossesTwoToThe31BytesBetweenTwoRanks) {
  const std::size_t count = (std::size_t{1} << 31) + 11;
  if (available_memory() < 4 * count) GTEST_SKIP() << "needs 9 GB of free memory";
  start();
  const Clients clients = start_ranks(node(), 2, "init 100000");
  expect_all_ok(clients, "allreduce c0 " + std::to_string(count) + " int8 sum place=in mem=alloc",
                milliseconds(110000));
}

TEST_F(AllReduce, RunsManyOperationsInARowThroughARingThatWraps) {
  DaemonProcess::Options options;
  options.settings["rings.slots"] = "8";
  start(options);
  const Clients clients = start_ranks(node(), 2);
  expect_all_ok(clients, "allreduce c0 257 float32 sum n=2000");
}

}  // namespace
}  // namespace arcomm::support
