// The shapes in which an application may ask: several ranks in a process, groups, threads, tickets,
// plans, several communicators, rebuilt communicators.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Shapes : public NodeTest {};

TEST_F(Shapes, OneProcessDrivesSeveralRanksByGroupsAndByThreads) {
  start();
  const auto client = ClientProcess::start(node());
  client->expect_ok("init");
  const std::string id = client->expect_ok("id");
  client->expect_ok("comms c 4 " + id + " 0 1 2 3");
  client->expect_ok("group 4097 float32 sum c0 c1 c2 c3");
  client->expect_ok("threads 4097 float16 max c0 c1 c2 c3");
  client->expect_ok("group 1 int64 prod c3 c1 c0 c2");
  client->expect_ok("finalize");
}

TEST_F(Shapes, RanksOfOneCommunicatorMayBeSpreadUnevenlyOverProcesses) {
  start();
  const auto one = ClientProcess::start(node());
  const auto other = ClientProcess::start(node());
  one->expect_ok("init");
  other->expect_ok("init");
  const std::string id = one->expect_ok("id");
  one->tell("comms c 5 " + id + " 4 0 2");
  other->tell("comms c 5 " + id + " 1 3");
  EXPECT_TRUE(one->hear().ok());
  EXPECT_TRUE(other->hear().ok());
  one->tell("group 30001 bfloat16 sum c0 c1 c2");
  other->tell("threads 30001 bfloat16 sum c0 c1");
  const Reply first = one->hear(), second = other->hear();
  EXPECT_TRUE(first.ok()) << first.to_string();
  EXPECT_TRUE(second.ok()) << second.to_string();
  EXPECT_EQ(first.value, second.value);
}

TEST_F(Shapes, TicketsCompleteInAnyOrderOfWaiting) {
  start();
  const Clients clients = start_ranks(node(), 2);
  for (const char* name : {"a", "b", "c", "d"}) {
    expect_all_ok(clients, std::string("async ") + name + " c0 2049 float32 sum salt=" + name[0]);
  }
  for (const char* name : {"d", "a", "c", "b"}) expect_all_ok(clients, std::string("wait ") + name);
}

TEST_F(Shapes, ATicketIsInProgressUntilTheLastRankHasCalled) {
  start();
  const Clients clients = start_ranks(node(), 2);
  clients[0]->expect_ok("async a c0 1000 float32 sum");
  EXPECT_EQ(clients[0]->ask("test a").code, arcInProgress);
  const Reply impatient = clients[0]->ask("wait a 200");
  EXPECT_EQ(impatient.code, arcDeadlineExceeded) << impatient.to_string();
  EXPECT_LT(impatient.took, milliseconds(200) + kSlack);
  clients[1]->expect_ok("allreduce c0 1000 float32 sum");
  clients[0]->expect_ok("wait a");
}

TEST_F(Shapes, APlanIsStartedManyTimesWithFreshData) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_all_ok(clients, "plan p c0 3001 float32 sum mem=alloc");
  expect_all_ok(clients, "planrun p 200");
  expect_all_ok(clients, "plan q c0 129 int32 max place=in mem=heap");
  expect_all_ok(clients, "planrun q 50");
  expect_all_ok(clients, "planrun p 5");
  expect_all_ok(clients, "plandestroy p");
  expect_all_ok(clients, "plandestroy q");
}

TEST_F(Shapes, SeveralCommunicatorsOverTheSameProcessesDoNotMix) {
  start();
  const Clients clients = start_ranks(node(), 3);
  form_communicator(clients, "c1");
  for (int round = 0; round < 20; ++round) {
    expect_all_ok(clients, "async x c0 500 float32 sum salt=1");
    expect_all_ok(clients, "async y c1 700 int8 max salt=2");
    expect_all_ok(clients, "wait y");
    expect_all_ok(clients, "wait x");
  }
  expect_all_ok(clients, "destroy c1");
  expect_all_ok(clients, "allreduce c0 10 uint64 sum");
}

TEST_F(Shapes, AnAbortedCommunicatorIsRebuiltInItsNextEpoch) {
  start();
  const Clients clients = start_ranks(node(), 2);
  EXPECT_EQ(clients[1]->expect_ok("epoch c0"), "1");
  clients[0]->tell("allreduce c0 1000 float32 sum");
  clients[1]->expect_ok("sleep 100");
  clients[1]->expect_ok("abort c0");
  const Reply aborted = clients[0]->hear();
  EXPECT_EQ(aborted.code, arcAborted) << aborted.to_string();
  EXPECT_EQ(aborted.reason, arcReasonRemoteAborted) << aborted.to_string();
  EXPECT_EQ(aborted.rank, 1) << aborted.to_string();
  expect_trace("RemoteAborted", 1);
  expect_metric_at_least("arcomm_communicators_revoked_total", {"RemoteAborted"}, 1);
}

TEST_F(Shapes, AfterATimeoutBothRanksRebuildAndCarryOn) {
  start();
  const Clients clients = start_ranks(node(), 2, "init 1000");
  EXPECT_EQ(clients[0]->ask("allreduce c0 10 float32 sum").reason, arcReasonTimeout);
  expect_all_ok(clients, "rebuild c0");
  EXPECT_EQ(clients[0]->expect_ok("epoch c0"), "2");
  expect_all_ok(clients, "allreduce c0 10 float32 sum n=10");
}

TEST_F(Shapes, RanksMayComeMinutesApartWithinTheJoinTimeout) {
  start();
  const auto early = ClientProcess::start(node());
  const auto late = ClientProcess::start(node());
  early->expect_ok("init");
  const std::string id = early->expect_ok("id");
  early->tell("comm c0 2 " + id + " 0");
  late->expect_ok("sleep 700");
  late->expect_ok("init");
  late->tell("comm c0 2 " + id + " 1");
  EXPECT_TRUE(early->hear().ok());
  EXPECT_TRUE(late->hear().ok());
}

}  // namespace
}  // namespace arcomm::support
