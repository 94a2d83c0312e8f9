// Small operations on one host, which the ranks' processes run within their calls: that they do,
// that operators see it, and that whatever does not meet there ends as it does at the worker.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class InCall : public NodeTest {
 protected:
  Clients start_with(std::uint64_t bytes, int ranks, const std::string& init = "init") {
    DaemonProcess::Options options;
    options.settings["host.in_call_bytes"] = std::to_string(bytes);
    start(options);
    return start_ranks(node(), ranks, init);
  }
  double in_call() { return scrape().value("arcomm_in_call_operations_total"); }
  // Calls meet where ranks come soon: mostly, on a busy machine.
  void expect_to_meet(const Clients& clients) {
    const double before = in_call();
    EXPECT_TRUE(eventually(kPrompt, [&] {
      expect_all_ok(clients, "allreduce c0 10 float32 sum n=20");
      return in_call() > before;
    })) << "no call meets any more";
  }
  nlohmann::json communicator() { return arctl_json(node(), {"comms"})["communicators"][0]; }
};

TEST_F(InCall, TheRanksRunWhatIsSmallAndTheOperatorSeesIt) {
  const Clients clients = start_with(16384, 3);
  expect_to_meet(clients);
  const double before = scrape().value("arcomm_operations_total", {"Ok"});
  const double bytes = scrape().value("arcomm_bytes_reduced_total");
  const double met = in_call();
  expect_all_ok(clients, "allreduce c0 1000 float32 sum n=50");
  EXPECT_LE(in_call(), met + 150);
  EXPECT_GE(in_call(), met);
  EXPECT_EQ(scrape().value("arcomm_operations_total", {"Ok"}), before + 150);
  EXPECT_EQ(scrape().value("arcomm_bytes_reduced_total"), bytes + 150 * 4000);
  const double all_met = in_call();
  expect_all_ok(clients, "allreduce c0 5000 float32 sum n=10");  // the worker's
  EXPECT_EQ(in_call(), all_met);
  EXPECT_EQ(scrape().value("arcomm_operations_total", {"Ok"}), before + 180);
  const nlohmann::json shown = communicator();
  EXPECT_EQ(shown["launches"][0]["path"], "in-call") << shown.dump(1);
  EXPECT_EQ(shown["launches"][0]["most_bytes"], 8192) << shown.dump(1);
  EXPECT_EQ(shown["launches"][2]["most_bytes"], 16384) << shown.dump(1);
  EXPECT_EQ(shown["operations_done"], before / 3 + 60) << shown.dump(1);
  EXPECT_EQ(shown["members"][1]["last_seq"], before / 3 + 60) << shown.dump(1);
  EXPECT_EQ(shown["why_not_in_call"], "");
  const nlohmann::json traced = arctl_json(node(), {"trace", "--last", "0"});
  EXPECT_EQ(traced["in_call"][0]["communicator"], shown["id"]) << traced["in_call"].dump(1);
  EXPECT_EQ(traced["in_call"][0]["operations"], all_met);
  EXPECT_NE(arctl(node(), {"trace"}).output.find("Within the ranks' calls"), std::string::npos);
  // What ended with its communicator stays counted.
  expect_all_ok(clients, "finalize");
  expect_metric_settles("arcomm_sessions", 0);
  EXPECT_EQ(in_call(), all_met);
}

TEST_F(InCall, TheBitsAreThoseOfTheWorker) {
  std::set<std::string> hashes;
  for (const std::uint64_t bytes : {0, 65536}) {
    const Clients clients = start_with(bytes, 4);
    std::string all;
    for (const char* what :
         {"0 float32 sum", "1 float16 avg", "33 bfloat16 sum", "1000 float32 prod",
          "1003 float16 sum", "2047 float64 avg", "4001 bfloat16 avg", "777 int8 avg",
          "2048 uint64 prod", "5 int32 min"}) {
      for (const Reply& reply : ask_all(clients, "allreduce c0 " + std::string(what))) {
        EXPECT_TRUE(reply.ok()) << what << ": " << reply.to_string();
        all += reply.value + " ";
      }
    }
    if (bytes == 0) {
      EXPECT_EQ(in_call(), 0);
    } else {
      EXPECT_GT(in_call(), 0);
    }
    hashes.insert(all);
    node_.reset();
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST_F(InCall, IsSwitchedOffByItsSettingAndTheOperatorIsToldWhy) {
  const Clients clients = start_with(0, 2);
  expect_all_ok(clients, "allreduce c0 10 float32 sum n=5");
  EXPECT_EQ(in_call(), 0);
  EXPECT_EQ(communicator()["why_not_in_call"], "host.in_call_bytes is 0");
}

// By ranks of arctl's own, as daemons cannot call.
TEST_F(InCall, ArctlTuneFindsUpToWhichSizeItIsFaster) {
  start();
  const ArctlRun run =
      arctl(node(), {"tune", "--device", "host", "--max-size", "64K", "--budget", "100", "--json"},
            milliseconds(120'000));
  ASSERT_EQ(run.code, 0) << run.errors;
  const nlohmann::json tuned = run.json();
  std::uint64_t most = 0, measured = 0;
  bool is_faster = true;
  for (const nlohmann::json& point : tuned["points"]) {
    if (point["ranks"] != 2 || point["class"] != "plain") continue;
    if (point["algorithm"] == "by_worker") measured = point["bytes"];
    if (point["algorithm"] != "in_call") continue;
    EXPECT_GT(point["us"], 0.0);
    is_faster = is_faster && point["chosen"];
    if (is_faster) most = point["bytes"];
    EXPECT_EQ(point["chosen"], is_faster) << "one bound: " << point.dump();
  }
  EXPECT_EQ(measured, 65536u) << tuned.dump(1);
  EXPECT_NE(std::string(tuned["table"]).find("[[in_call]]"), std::string::npos);
  const Clients clients = start_ranks(node(), 2);
  std::uint64_t shown = 0;
  const nlohmann::json formed = communicator();
  for (const nlohmann::json& row : formed["launches"]) {
    if (row["path"] == "in-call" && row["types"] != "float16, bfloat16") shown = row["most_bytes"];
  }
  EXPECT_EQ(shown, most) << formed.dump(1);
  const nlohmann::json why = arctl_json(node(), {"tune", "--explain", "256", "--device", "host"});
  EXPECT_EQ(why["chosen"] == "in_call", most >= 256) << why.dump(1);
}

TEST_F(InCall, ACommunicatorCostsTheDaemonNoDescriptor) {
  const Clients clients = start_with(16384, 2);
  expect_to_meet(clients);
  const std::size_t before = node().child().open_descriptors();
  for (int i = 1; i <= 20; ++i) form_communicator(clients, "c" + std::to_string(i));
  EXPECT_TRUE(eventually(kPrompt, [&] { return node().child().open_descriptors() <= before + 4; }))
      << node().child().open_descriptors() << " and " << before << " before";
}

TEST_F(InCall, RanksThatCallInDifferentWaysMeetAtTheWorker) {
  const Clients clients = start_with(32768, 2);
  for (int round = 0; round < 30; ++round) {
    const std::string name = "t" + std::to_string(round);
    const std::size_t late = static_cast<std::size_t>(round % 2);
    // One waits in its call, the other asks for a ticket: the worker has both.
    clients[late]->tell("async " + name + " c0 100 float32 sum");
    clients[1 - late]->tell("allreduce c0 100 float32 sum");
    EXPECT_TRUE(clients[late]->hear().ok());
    EXPECT_TRUE(clients[1 - late]->hear().ok());
    clients[late]->expect_ok("wait " + name);
    expect_all_ok(clients, "allreduce c0 100 float32 sum n=3");
  }
  expect_to_meet(clients);
}

TEST_F(InCall, AMismatchIsNamedAndTheNextOperationGoesOn) {
  const Clients clients = start_with(32768, 3);
  expect_all_ok(clients, "allreduce c0 10 float32 sum n=3");
  for (const char* other : {"allreduce c0 11 float32 sum", "allreduce c0 10 float32 max",
                            "allreduce c0 10 int32 sum", "allreduce c0 100000 float32 sum"}) {
    clients[0]->tell("allreduce c0 10 float32 sum");
    clients[1]->tell(other);
    clients[2]->tell("allreduce c0 10 float32 sum");
    for (const auto& client : clients) {
      const Reply reply = client->hear();
      EXPECT_EQ(reply.code, arcFailedPrecondition) << other << ": " << reply.to_string();
      EXPECT_EQ(reply.reason, arcReasonMismatch) << other << ": " << reply.to_string();
      EXPECT_LT(reply.took, kPrompt) << other;
    }
    expect_to_meet(clients);
  }
}

TEST_F(InCall, ALateRankIsWaitedForAndAFrozenOneIsNamedByTheDeadline) {
  const Clients clients = start_with(32768, 2, "init 1000");
  expect_all_ok(clients, "allreduce c0 10 float32 sum");
  clients[0]->tell("allreduce c0 10 float32 sum");
  ::usleep(100'000);  // far more than is waited for in a call
  clients[1]->expect_ok("allreduce c0 10 float32 sum");
  EXPECT_TRUE(clients[0]->hear().ok());
  expect_to_meet(clients);
  clients[1]->child().signal(SIGSTOP);
  const Reply timed_out = clients[0]->ask("allreduce c0 10 float32 sum");
  clients[1]->child().signal(SIGCONT);
  EXPECT_EQ(timed_out.code, arcDeadlineExceeded) << timed_out.to_string();
  EXPECT_EQ(timed_out.rank, 1) << timed_out.to_string();
  EXPECT_NE(timed_out.message.find(std::to_string(clients[1]->pid())), std::string::npos)
      << timed_out.to_string();
  EXPECT_LT(timed_out.took, milliseconds(1100) + kSlack);
}

TEST_F(InCall, ARankThatIsKilledBetweenAndWithinCallsIsNamed) {
  for (int round = 0; round < 5; ++round) {
    const Clients clients = round == 0 ? start_with(32768, 3) : start_ranks(node(), 3);
    for (const auto& client : clients) client->tell("allreduce c0 100 float32 sum n=200000");
    ::usleep(static_cast<useconds_t>(3'000 * (round + 1)));
    clients[2]->child().kill();
    for (const std::size_t rank : {0, 1}) {
      const Reply reply = clients[rank]->hear();
      EXPECT_EQ(reply.code, arcAborted) << reply.to_string();
      EXPECT_EQ(reply.rank, 2) << reply.to_string();
    }
  }
}

}  // namespace
}  // namespace arcomm::support
