// Ranks that ask for different things, not at all, or in another order. Fault matrix 20, 21 and 22.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Disagreement : public NodeTest {
 protected:
  std::vector<Reply> ask_each(const Clients& clients, std::initializer_list<const char*> lines) {
    std::size_t rank = 0;
    for (const char* line : lines) clients[rank++]->tell(line);
    std::vector<Reply> replies;
    for (const auto& client : clients) replies.push_back(client->hear());
    return replies;
  }
  void expect_mismatch(const std::vector<Reply>& replies,
                       std::initializer_list<const char*> words) {
    expect_all_fail(replies, arcFailedPrecondition, arcReasonMismatch);
    for (const Reply& reply : replies) {
      EXPECT_LT(reply.took, kPrompt) << "told only by the deadline";
      for (const char* word : words) {
        EXPECT_NE(reply.message.find(word), std::string::npos)
            << "no \"" << word << "\" in: " << reply.message;
      }
    }
    expect_trace("Mismatch");
    expect_log("(Mismatch)");
    expect_metric_at_least("arcomm_operations_total", {"FailedPrecondition"},
                           static_cast<double>(replies.size()));
  }
};

TEST_F(Disagreement, DifferentCountsAreNamedOnAllRanks) {  // 20
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_mismatch(
      ask_each(clients, {"allreduce c0 1000 float32 sum", "allreduce c0 1001 float32 sum"}),
      {"1000", "1001"});
}

TEST_F(Disagreement, DifferentTypesAreNamedOnAllRanks) {  // 20
  start();
  const Clients clients = start_ranks(node(), 3);
  expect_mismatch(ask_each(clients, {"allreduce c0 64 float32 sum", "allreduce c0 64 float32 sum",
                                     "allreduce c0 64 int32 sum"}),
                  {"float32", "int32"});
}

TEST_F(Disagreement, DifferentOperationsAreNamedOnAllRanks) {  // 20
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_mismatch(ask_each(clients, {"allreduce c0 64 float32 sum mem=alloc",
                                     "allreduce c0 64 float32 max mem=alloc"}),
                  {"sum", "max"});
}

TEST_F(Disagreement, DifferentCodecsAreNamedOnAllRanks) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_mismatch(ask_each(clients, {"allreduce c0 64 float32 sum codec=2",
                                     "allreduce c0 64 float32 sum codec=7"}),
                  {"codec", "q8", "q4_rotated"});
  expect_mismatch(
      ask_each(clients, {"allreduce c0 64 float32 sum codec=1", "allreduce c0 64 float32 sum"}),
      {"codec", "fp8", "none"});
}

TEST_F(Disagreement, AMismatchInALaterSegmentIsNotReportedAsSuccess) {  // 20
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  const Clients clients = start_ranks(node(), 2, "init 3000");
  const std::vector<Reply> replies =
      ask_each(clients, {"allreduce c0 100000 float32 sum", "allreduce c0 100100 float32 sum"});
  for (const Reply& reply : replies) {
    EXPECT_TRUE(reply.heard && reply.code != arcSuccess) << reply.to_string();
    EXPECT_LT(reply.took, milliseconds(3000) + kSlack);
  }
}

TEST_F(Disagreement, AfterAMismatchTheCommunicatorCanBeUsedOrRebuilt) {  // 20
  start();
  const Clients clients = start_ranks(node(), 2);
  ask_each(clients, {"allreduce c0 1000 float32 sum", "allreduce c0 1001 float32 sum"});
  bool usable = true;
  for (const Reply& reply : ask_all(clients, "allreduce c0 77 float32 sum"))
    usable = usable && reply.ok();
  if (!usable) expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 77 float32 sum n=5");
}

TEST_F(Disagreement, RanksThatDisagreeAboutTheirNumberAreTold) {  // 20
  start();
  const auto one = ClientProcess::start(node()), other = ClientProcess::start(node());
  one->expect_ok("init 3000");
  other->expect_ok("init 3000");
  const std::string id = one->expect_ok("id");
  one->tell("comm c0 2 " + id + " 0");
  other->tell("comm c0 3 " + id + " 1");
  for (const Reply& reply : {one->hear(), other->hear()}) {
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
    EXPECT_LT(reply.took, kPrompt);
  }
  for (const ClientProcess* client : {one.get(), other.get()})
    expect_refusal_told("CreateCommunicator", client->pid(), "InvalidArgument");
}

TEST_F(Disagreement, TheSameRankTwiceIsRefused) {
  start();
  const auto one = ClientProcess::start(node()), other = ClientProcess::start(node());
  one->expect_ok("init 2000");
  other->expect_ok("init 2000");
  const std::string id = one->expect_ok("id");
  one->tell("comm c0 2 " + id + " 0");
  other->expect_ok("sleep 200");
  const Reply twice = other->ask("comm c0 2 " + id + " 0");
  EXPECT_TRUE(twice.heard && twice.code != arcSuccess) << twice.to_string();
  EXPECT_LT(twice.took, milliseconds(2000) + kSlack);
  const Reply first = one->hear();
  EXPECT_TRUE(first.heard && first.code != arcSuccess) << first.to_string();
}

TEST_F(Disagreement, ARankThatNeverCallsIsNamedByTheErrorAndByDiagnose) {  // 21
  start();
  const Clients clients = start_ranks(node(), 3, "init 5000");
  expect_all_ok(clients, "allreduce c0 10 float32 sum n=4");
  clients[0]->tell("allreduce c0 10 float32 sum");
  clients[2]->tell("allreduce c0 10 float32 sum");
  // While they wait, the operator sees who is missing.
  const std::string pid = std::to_string(clients[1]->pid());
  nlohmann::json lagging;
  EXPECT_TRUE(eventually(milliseconds(4000), [&] {
    const ArctlRun run = arctl(node(), {"diagnose", "--json"});
    const nlohmann::json found = run.json();
    if (found.is_discarded() || !found.contains("communicators")) return false;
    for (const nlohmann::json& one : found["communicators"]) {
      if (one.contains("lagging")) lagging = one["lagging"];
    }
    return !lagging.is_null();
  })) << "arctl diagnose names nobody";
  EXPECT_EQ(lagging.value("rank", -1), 1) << lagging.dump();
  EXPECT_EQ(std::to_string(lagging.value("pid", 0)), pid) << lagging.dump();
  EXPECT_EQ(lagging.value("last_seq", 0), 4) << lagging.dump();
  const std::vector<Reply> replies{clients[0]->hear(), clients[2]->hear()};
  expect_all_fail(replies, arcDeadlineExceeded, arcReasonTimeout);
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.rank, 1) << reply.to_string();
    EXPECT_NE(reply.message.find(pid), std::string::npos) << "the pid is not in: " << reply.message;
    EXPECT_LT(reply.took, milliseconds(5000) + kSlack);
  }
  expect_trace("Timeout", 1);
  expect_metric_at_least("arcomm_communicators_revoked_total", {"Timeout"}, 1);
  expect_log("did not call");
}

TEST_F(Disagreement, CommunicatorsUsedInOppositeOrderAreReportedAsCrossed) {  // 22
  start();
  const Clients clients = start_ranks(node(), 2, "init 1500");
  form_communicator(clients, "c1");
  const std::vector<Reply> replies =
      ask_each(clients, {"allreduce c0 10 float32 sum", "allreduce c1 10 float32 sum"});
  for (const Reply& reply : replies) {
    EXPECT_TRUE(reply.code == arcDeadlineExceeded || reply.code == arcAborted) << reply.to_string();
    EXPECT_EQ(reply.reason, arcReasonCrossed) << reply.to_string();
    EXPECT_LT(reply.took, milliseconds(1500) + kSlack);
  }
  expect_trace("Crossed");
  expect_log("wait for each other");
  expect_metric_at_least("arcomm_communicators_revoked_total", {"Crossed"}, 2);
  // Nothing in the daemon is stuck: both communicators can be had again.
  for (const char* name : {"c0", "c1"}) {
    expect_all_ok(clients, std::string("rebuild ") + name);
    expect_all_ok(clients, std::string("allreduce ") + name + " 10 float32 sum");
  }
}

TEST_F(Disagreement, OppositeOrderWithoutBlockingIsNoError) {  // 22
  start();
  const Clients clients = start_ranks(node(), 2);
  form_communicator(clients, "c1");
  ask_each(clients, {"async a c0 500 float32 sum", "async b c1 600 int32 max"});
  ask_each(clients, {"async b c1 600 int32 max", "async a c0 500 float32 sum"});
  expect_all_ok(clients, "wait a");
  expect_all_ok(clients, "wait b");
}

}  // namespace
}  // namespace arcomm::support
