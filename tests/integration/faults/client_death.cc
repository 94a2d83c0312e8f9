// Clients that die, freeze, leave without a word, or fork. Fault matrix 1 to 5.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class ClientDeath : public NodeTest {};

TEST_F(ClientDeath, AnIdleClientThatIsKilledIsReapedWithAllItHeld) {  // 1
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_all_ok(clients, "alloc big 8388608");
  expect_all_ok(clients, "allreduce c0 10000 float32 sum mem=alloc");
  const double held = scrape().value("arcomm_registered_bytes");
  EXPECT_GE(held, 2 * 8388608.0);
  const auto killed = std::chrono::steady_clock::now();
  clients[1]->child().kill();
  expect_metric_settles("arcomm_sessions", 1, milliseconds(1000) + kSlack);
  EXPECT_TRUE(eventually(
      kPrompt, [&] { return scrape().value("arcomm_registered_bytes") <= held - 8388608; }));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, milliseconds(1000) + 2 * kSlack);
  expect_metric_at_least("arcomm_sessions_lost_total", {"RemoteDied"}, 1);
  expect_log("ended: pid " + std::to_string(clients[1]->pid()));
  // It was at no operation: the flight recorder has only those of the worker that went well.
  EXPECT_EQ(traced("Ok"), 2u);
  EXPECT_EQ(arctl_json(node(), {"sessions"})["sessions"].size(), 1u);
  const Reply reply = clients[0]->ask("allreduce c0 10 float32 sum");
  EXPECT_EQ(reply.code, arcAborted) << reply.to_string();
  EXPECT_EQ(reply.rank, 1) << reply.to_string();
  EXPECT_LT(reply.took, kPrompt);
}

TEST_F(ClientDeath, AKilledRankIsNamedToTheRanksThatWaitForIt) {  // 2
  start();
  const Clients clients = start_ranks(node(), 3, "init 20000");
  clients[0]->tell("allreduce c0 4096 float32 sum");
  clients[1]->tell("allreduce c0 4096 float32 sum mem=alloc");
  wait_in_flight(2);
  clients[2]->child().kill();
  const std::vector<Reply> replies{clients[0]->hear(kPrompt), clients[1]->hear(kPrompt)};
  expect_all_fail(replies, arcAborted, arcReasonRemoteDied);
  for (const Reply& reply : replies) EXPECT_EQ(reply.rank, 2) << reply.to_string();
  const std::string culprit = "rank 2 (pid " + std::to_string(clients[2]->pid()) + ")";
  EXPECT_NE(replies[0].message.find(culprit), std::string::npos) << replies[0].message;
  expect_trace("RemoteDied", 2);
  expect_metric_at_least("arcomm_communicators_revoked_total", {"RemoteDied"}, 1);
  expect_log("is revoked: " + culprit);
  EXPECT_EQ(level_of_line(node().log(), "is revoked: " + culprit), "warn");
}

TEST_F(ClientDeath, AReplacementTakesTheDeadRanksPlaceInTheNextEpoch) {
  start();
  Clients clients = start_ranks(node(), 2);
  const std::string id = clients[0]->expect_ok("id");
  for (int rank = 0; rank < 2; ++rank) {
    clients[static_cast<std::size_t>(rank)]->tell("comm c1 2 " + id + " " + std::to_string(rank));
  }
  for (const auto& client : clients) EXPECT_TRUE(client->hear().ok());
  clients[1]->child().kill();
  EXPECT_NE(clients[0]->ask("allreduce c1 10 float32 sum").code, arcSuccess);
  auto replacement = ClientProcess::start(node());
  replacement->expect_ok("init");
  replacement->tell("comm c1 2 " + id + " 1");
  clients[0]->tell("rebuild c1");
  const Reply joined = replacement->hear(), rebuilt = clients[0]->hear();
  EXPECT_TRUE(joined.ok()) << joined.to_string();
  EXPECT_TRUE(rebuilt.ok()) << rebuilt.to_string();
  clients[0]->tell("allreduce c1 1000 float32 sum");
  replacement->tell("allreduce c1 1000 float32 sum");
  EXPECT_TRUE(clients[0]->hear().ok());
  EXPECT_TRUE(replacement->hear().ok());
}

TEST_F(ClientDeath, DyingAtAnyMomentOfTheJourneyNeverGivesAWrongSumOrAHang) {  // 2
  start();
  for (int attempt = 0; attempt < 12; ++attempt) {
    const Clients clients = start_ranks(node(), 3, "init 10000");
    clients[0]->tell("loop c0 200000 float32 sum n=100000");
    clients[1]->tell("loop c0 200000 float32 sum n=100000");
    if (attempt % 3 == 0) {
      clients[2]->tell("die c0 200000");
    } else {
      clients[2]->tell("loop c0 200000 float32 sum n=100000");
      ::usleep(static_cast<useconds_t>(3000 + attempt * 7919 % 40000));
      clients[2]->child().kill();
    }
    for (const std::size_t rank : {0u, 1u}) {
      const Reply reply = clients[rank]->hear(milliseconds(10000) + kSlack);
      ASSERT_TRUE(reply.heard) << "rank " << rank << " hangs";
      EXPECT_EQ(reply.code, arcAborted) << reply.to_string();
      // A request that comes after the news is told that the communicator was revoked, and why.
      EXPECT_TRUE(reply.reason == arcReasonRemoteDied || reply.reason == arcReasonRevoked)
          << reply.to_string();
      EXPECT_NE(reply.message.find("rank 2"), std::string::npos) << reply.message;
    }
  }
}

TEST_F(ClientDeath, AFrozenClientStallsNobodyButItsOwnCommunicator) {  // 3
  start();
  const Clients frozen = start_ranks(node(), 2, "init 3000");
  const Clients others = start_ranks(node(), 2);
  frozen[1]->child().signal(SIGSTOP);
  frozen[0]->tell("allreduce c0 1000 float32 sum");
  expect_all_ok(others, "allreduce c0 1000 float32 sum n=200");
  const Reply timed_out = frozen[0]->hear(milliseconds(3000) + kPrompt);
  EXPECT_EQ(timed_out.code, arcDeadlineExceeded) << timed_out.to_string();
  EXPECT_EQ(timed_out.reason, arcReasonTimeout);
  EXPECT_EQ(timed_out.rank, 1);
  EXPECT_GE(timed_out.took, milliseconds(2900));
  EXPECT_LT(timed_out.took, milliseconds(3000) + kSlack);
  expect_trace("Timeout", 1);
  expect_metric_at_least("arcomm_operations_total", {"DeadlineExceeded"}, 1);
  expect_log("rank 1 (pid " + std::to_string(frozen[1]->pid()) + ") did not call");

  frozen[1]->child().signal(SIGCONT);
  const Reply resumed = frozen[1]->ask("allreduce c0 1000 float32 sum");
  EXPECT_TRUE(resumed.reason == arcReasonTimeout || resumed.reason == arcReasonRevoked)
      << resumed.to_string();
  EXPECT_LT(resumed.took, kPrompt);
  expect_all_ok(frozen, "rebuild c0");
  expect_all_ok(frozen, "allreduce c0 1000 float32 sum");
}

TEST_F(ClientDeath, LeavingWithoutFinalizeIsNoError) {  // 4
  start();
  const Clients clients = start_ranks(node(), 2);
  const std::string pid = "pid " + std::to_string(clients[0]->pid());
  for (const char* way : {"exit 0", "_exit 0"}) {
    clients[way[0] == '_' ? 0 : 1]->tell(way);
  }
  expect_metric_settles("arcomm_sessions", 0, milliseconds(1000) + kSlack);
  EXPECT_EQ(traced("Ok"), 0u) << "there was no operation to record";
  expect_log(pid);
  const std::string log = node().log();
  EXPECT_EQ(level_of_line(log.substr(log.rfind(" ended: ") > 200 ? log.rfind(" ended: ") - 200 : 0),
                          " ended: "),
            "info");
  EXPECT_EQ(level_of_line(log, " is revoked"), "info");
}

TEST_F(ClientDeath, AForkedChildIsToldSoAndTheParentGoesOn) {  // 5
  start();
  const Clients clients = start_ranks(node(), 2);
  const Reply forked = clients[0]->ask("fork c0");
  ASSERT_TRUE(forked.ok()) << forked.to_string();
  // code,reason of AllReduce and code of MemAlloc, in the child.
  EXPECT_EQ(forked.value, std::to_string(arcFailedPrecondition) + "," +
                              std::to_string(arcReasonForked) + "," +
                              std::to_string(arcFailedPrecondition))
      << forked.message;
  EXPECT_NE(forked.message.find("fork"), std::string::npos) << forked.message;
  EXPECT_LT(forked.took, kPrompt);
  // The daemon never hears of the child: no session, no line, no record.
  EXPECT_EQ(scrape().value("arcomm_sessions_opened_total"), 2);
  expect_all_ok(clients, "allreduce c0 10000 float32 sum n=20");
  EXPECT_EQ(traced("Ok"), 40u);
  EXPECT_EQ(traced("Ok", clients[0]->pid()), 20u);
}

}  // namespace
}  // namespace arcomm::support
