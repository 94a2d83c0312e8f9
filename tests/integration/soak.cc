// Thousands of cycles and minutes of everything at once: memory, descriptors and results stay as
// they are. Fault matrix 42. Longer: ARCOMM_SOAK_SECONDS, ARCOMM_SOAK_CYCLES.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Soak : public NodeTest {
 protected:
  static std::uint64_t seconds() { return setting_from("ARCOMM_SOAK_SECONDS", 6); }
  static std::uint64_t cycles() { return setting_from("ARCOMM_SOAK_CYCLES", 2500); }
  // Ten milliseconds for a cycle of each of the four kinds is far more than one takes.
  Soak() : NodeTest(std::chrono::seconds(150 + 2 * seconds() + cycles() / 25)) {}

  struct Size {
    std::uint64_t resident = 0;
    std::size_t descriptors = 0, threads = 0;
  };
  static Size size_of(const ChildProcess& child) {
    return {child.resident_bytes(), child.open_descriptors(), child.threads()};
  }
  static constexpr std::uint64_t kGrowth = (12u << 20) + kQuarantineBytes;
  static void expect_same_size(const Size& before, const Size& after, const std::string& what) {
    EXPECT_LE(after.resident, before.resident + kGrowth) << what << ": resident memory grew";
    EXPECT_LE(after.descriptors, before.descriptors + 4) << what << ": descriptors leak";
    EXPECT_LE(after.threads, before.threads + 4) << what << ": threads leak";
  }
};

TEST_F(Soak, ThousandsOfCyclesLeaveNothingBehindOnEitherSide) {
  start();
  const std::string many = " " + std::to_string(cycles());
  const milliseconds patience(60'000 + cycles() * 10);
  const auto client = ClientProcess::start(node());
  client->expect_ok("init");
  for (const char* kind : {"comm", "alloc", "register"}) {
    client->expect_ok(std::string("cycles ") + kind + " 200",
                      milliseconds(60000));  // pools fill, once
    const Size node_before = size_of(node().child()), client_before = size_of(client->child());
    client->expect_ok(std::string("cycles ") + kind + many, patience);
    expect_same_size(node_before, size_of(node().child()),
                     std::string("the daemon, after cycles of ") + kind);
    expect_same_size(client_before, size_of(client->child()),
                     std::string("the client, after cycles of ") + kind);
  }
  client->expect_ok("finalize");
  client->expect_ok("cycles session 100", milliseconds(60000));
  expect_metric_settles("arcomm_sessions", 0);
  const Size node_before = size_of(node().child()), client_before = size_of(client->child());
  client->expect_ok("cycles session" + many, patience);
  expect_metric_settles("arcomm_sessions", 0);
  expect_same_size(node_before, size_of(node().child()), "the daemon, after cycles of sessions");
  expect_same_size(client_before, size_of(client->child()), "the client, after cycles of sessions");
}

TEST_F(Soak, MinutesOfEverythingAtOnceGiveTheSameBitsInTheSameSpace) {
  start();
  std::mt19937 random(42);
  const char* types[] = {"float16", "bfloat16", "float32", "float64", "int8", "uint64"};
  const char* operations[] = {"sum", "max", "avg"};
  const char* memory[] = {"heap", "odd", "alloc", "registered"};
  std::map<std::string, std::string> first_hash;
  Clients steady = start_ranks(node(), 3);
  Size before;
  const auto began = std::chrono::steady_clock::now();
  const auto end = began + std::chrono::seconds(seconds());
  long rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    const std::string what = std::string("allreduce c0 ") +
                             std::to_string(1 + random() % 3 * 11111) + " " + types[random() % 6] +
                             " " + operations[random() % 3];
    const std::string how =
        std::string(" mem=") + memory[random() % 4] + " recv=" + memory[random() % 4];
    for (const Reply& reply : ask_all(steady, what + how)) {
      ASSERT_TRUE(reply.ok()) << what << how << ": " << reply.to_string();
      const auto [known, is_new] = first_hash.emplace(what, reply.value);
      ASSERT_EQ(known->second, reply.value) << what << how << ": other bits than the first time";
    }
    if (rounds % 40 == 20) {  // strangers come, die, and disturb nobody
      const Clients passing = start_ranks(node(), 2, "init 5000");
      passing[0]->tell("loop c0 10000 float32 sum n=100000");
      passing[1]->tell("loop c0 10000 float32 sum n=100000");
      ::usleep(static_cast<useconds_t>(random() % 20000));
      passing[random() % 2]->child().kill();
    }
    if (rounds == 120) {
      expect_metric_settles("arcomm_sessions", 3);
      before = size_of(node().child());
    }
  }
  expect_metric_settles("arcomm_sessions", 3);  // the last strangers' are let go of a moment later
  if (before.resident != 0)
    expect_same_size(before, size_of(node().child()), "the daemon, after the soak");
  RecordProperty("rounds", static_cast<int>(rounds));
  EXPECT_GT(rounds, 5);
  expect_all_ok(steady, "finalize");
}

TEST_F(Soak, AnIdleDaemonUsesUnderOnePercentOfACore) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_all_ok(clients, "allreduce c0 1000 float32 sum n=100");
  ::usleep(500'000);
  const double before = node().child().cpu_seconds();
  ::usleep(4'000'000);
  const double used = node().child().cpu_seconds() - before;
  EXPECT_LE(used, 0.05) << "idle with two attached clients, in four seconds";
}

}  // namespace
}  // namespace arcomm::support
