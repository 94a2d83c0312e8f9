// What is different for sessions on GPUs: who is on which, mailboxes, plans.
#include <gmock/gmock.h>

#include <future>

#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/launch_table.h"
#include "tests/unit/daemon/control/calls/gpu_fixture.h"

namespace arcomm::test {
namespace {

TEST_F(GpuTest, ResolvesTheDeviceOfAnAttach) {
  start({kFirst, kSecond});
  const std::pair<std::string, std::pair<std::string, bool>> cases[] = {
      {"", {"gpu", true}},
      {"gpu", {"gpu", true}},
      {kSecond, {kSecond, true}},
      {"host:0", {"host:0", false}}};
  for (const auto& [asked, expected] : cases) {
    v1::AttachReply reply;
    ASSERT_TRUE(attach(reply, kRingAbiMajor, asked).status.ok()) << asked;
    EXPECT_EQ(reply.device(), expected.first);
    EXPECT_EQ(reply.on_gpus(), expected.second) << asked;
  }
  EXPECT_EQ(worker_->open_sessions(), 3u);
  EXPECT_EQ(host_worker_->open_sessions(), 1u);
  v1::AttachReply reply;
  const Outcome unknown = attach(reply, kRingAbiMajor, "GPU-0");
  EXPECT_EQ(unknown.status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_NE(unknown.status.error_message().find("gpu, " + kFirst + ", " + kSecond + ", host:0"),
            std::string::npos)
      << unknown.status.error_message();
}

TEST_F(GpuTest, RefusesUsersWhomItsMpsServerDoesNotServe) {
  only_uid_ = ::geteuid() + 1;
  start({kFirst});
  v1::AttachReply reply;
  const Outcome refused = attach(reply, kRingAbiMajor, "gpu");
  EXPECT_EQ(refused.reason, Reason::Permission);
  for (const char* word : {"-multiuser-server", "gpu.mps", "require", "host:0"}) {
    EXPECT_NE(refused.status.error_message().find(word), std::string::npos) << word;
  }
  EXPECT_EQ(worker_->open_sessions(), 0u);
  EXPECT_TRUE(attach(reply, kRingAbiMajor, "host:0").status.ok());
  EXPECT_EQ(metrics_.sessions.value(), 1);
}

TEST_F(GpuTest, ServesTheOneUserWhomItsMpsServerServes) {
  only_uid_ = ::geteuid();
  start({kFirst});
  v1::AttachReply reply;
  EXPECT_TRUE(attach(reply, kRingAbiMajor, "gpu").status.ok());
}

TEST_F(GpuTest, GivesEachRankItsGpuAndItsMailbox) {
  start({kFirst, kSecond});
  Session on_second = open_session(kSecond);
  Session named = open_session("gpu");
  v1::CreateCommunicatorReply mine, other;
  auto later =
      std::async(std::launch::async, [&] { return join(on_second, unique_id('1'), 1, 2, &other); });
  const Outcome outcome = join(named, unique_id('1'), 0, 2, &mine, 3000, kFirst);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  ASSERT_TRUE(later.get().status.ok());
  const auto formed = worker_->formed();
  ASSERT_EQ(formed.size(), 1u);
  EXPECT_EQ(formed[0].ranks[0].device, kFirst);
  EXPECT_EQ(formed[0].ranks[1].device, kSecond) << "the GPU that the session named at Attach";
  ASSERT_EQ(mine.rank_devices_size(), 2);
  EXPECT_EQ(mine.rank_devices(1), kSecond);
  EXPECT_EQ(mine.mailbox_bytes(), FakeWorker::kGranule);
  EXPECT_EQ(fetch(named, mine.fd_ticket()), 2u);
  EXPECT_EQ(fetch(on_second, mine.fd_ticket()), 0u) << "a stranger's ticket";
  EXPECT_EQ(fetch(on_second, other.fd_ticket()), 2u);
}

TEST_F(GpuTest, APlaceOnEachGpuIsTheRanksUntilItLeaves) {
  start({kFirst, kSecond});
  Session first = open_session(kFirst);
  Session second = open_session(kSecond);
  v1::CreateCommunicatorReply mine, other, alone;
  auto later =
      std::async(std::launch::async, [&] { return join(second, unique_id('1'), 1, 2, &other); });
  ASSERT_TRUE(join(first, unique_id('1'), 0, 2, &mine).status.ok());
  ASSERT_TRUE(later.get().status.ok());
  ASSERT_TRUE(join(first, unique_id('2'), 0, 1, &alone).status.ok());
  const auto used_of = [&](const std::string& gpu) {
    const v1::StatusReply told = status();
    for (const v1::LimitStatus& limit : told.limits()) {
      if (limit.name() == "communicators of " + gpu) return static_cast<int>(limit.used());
    }
    return -1;
  };
  EXPECT_EQ(used_of(kFirst), 1) << "one that is alone needs no place";
  EXPECT_EQ(used_of(kSecond), 1);
  first.fds->hang_up();
  EXPECT_TRUE(eventually([&] { return used_of(kFirst) == 0; }));
  EXPECT_EQ(used_of(kSecond), 1);
}

TEST_F(GpuTest, ARankThatIsAloneTakesAPlaceOnItsGpuToo) {
  start({kFirst, kSecond});
  Session session = open_session(kSecond);
  v1::CreateCommunicatorReply joined;
  ASSERT_TRUE(join(session, unique_id('a'), 0, 1, &joined).status.ok());
  const v1::LimitStatus ranks = limit("ranks of " + kSecond);
  EXPECT_EQ(ranks.used(), 1u);
  EXPECT_EQ(ranks.of_node(), 1024u);
  EXPECT_EQ(limit("communicators of " + kSecond).used(), 0u);
  EXPECT_EQ(limit("ranks of " + kFirst).used(), 0u);
  EXPECT_GE(limit("bytes of " + kSecond).used(), FakeWorker::kGranule) << "its mailbox";
  ASSERT_TRUE(detach(session).status.ok());
  EXPECT_EQ(limit("ranks of " + kSecond).used(), 0u);
  EXPECT_EQ(limit("bytes of " + kSecond).used(), 0u);
}

// Of 16,384: a table that all GPUs share.
TEST_F(GpuTest, OneUserLeavesPlansOfTheGpusToOthers) {
  settings_.quota.plans = 65'536;
  start({kFirst});
  const Session session = open_session();
  v1::CreateCommunicatorReply joined;
  ASSERT_TRUE(join(session, unique_id('a'), 0, 1, &joined).status.ok());
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  request.set_member(joined.member());
  request.set_send_count(16);
  request.set_recv_count(16);
  Outcome outcome;
  std::size_t plans = 0;
  for (; plans < kMaxDevicePlans; ++plans) {
    v1::CreatePlanReply reply;
    outcome = call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply);
    if (!outcome.status.ok()) break;
  }
  EXPECT_EQ(plans, kMaxDevicePlans / 4 * 3);
  EXPECT_EQ(outcome.reason, Reason::Quota);
  EXPECT_NE(outcome.status.error_message().find("short of device_plans"), std::string::npos)
      << outcome.status.error_message();
  EXPECT_EQ(limit("device_plans").used(), kMaxDevicePlans / 4 * 3);
}

TEST_F(GpuTest, PlansThatASessionMakesInItsRingAreChargedForAhead) {
  settings_.quota.plans = 100;
  start({kFirst});
  const Session session = open_session();
  v1::CreateCommunicatorReply joined;
  ASSERT_TRUE(join(session, unique_id('a'), 0, 1, &joined).status.ok());
  v1::CreatePlanRequest request;
  *request.mutable_session() = session.ref;
  request.set_member(joined.member());
  request.set_send_count(16);
  request.set_recv_count(16);
  std::vector<std::uint64_t> plans;
  const auto create = [&](std::uint32_t ahead) {
    request.set_ahead(ahead);
    v1::CreatePlanReply reply;
    ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::CreatePlan, request, &reply).status.ok());
    plans.push_back(reply.plan());
  };
  create(0);
  EXPECT_EQ(limit("device_plans").used(), 1u);
  create(20);
  EXPECT_EQ(limit("device_plans").used(), 22u);
  EXPECT_EQ(limit("plans").used(), 22u);
  EXPECT_EQ(worker_->paid_ahead, 20u);
  create(40);  // more than half of what is left
  EXPECT_EQ(limit("plans").used(), 23u);
  EXPECT_EQ(worker_->paid_ahead, 20u);

  // A plan that goes takes one charge along, whichever paid for it.
  v1::DestroyPlanRequest destroy;
  *destroy.mutable_session() = session.ref;
  v1::Empty empty;
  for (const std::uint64_t plan : plans) {
    destroy.set_plan(plan);
    EXPECT_TRUE(call(*client_, &v1::NodeControl::Stub::DestroyPlan, destroy, &empty).status.ok());
  }
  EXPECT_EQ(limit("plans").used(), 20u);
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::DestroyPlan, destroy, &empty).reason,
            Reason::UnknownHandle);
  EXPECT_EQ(limit("plans").used(), 20u);
  ASSERT_TRUE(detach(session).status.ok());
  EXPECT_EQ(limit("plans").used(), 0u);
}

TEST_F(GpuTest, RefusesALibraryOfAnotherLaunchTableVersionByNameAndTellsAll) {
  start({kFirst, kSecond});
  const Session a = open_session(kFirst);
  const Session b = open_session(kSecond);
  auto first =
      std::async(std::launch::async, [&] { return join(a, unique_id('1'), 0, 2, nullptr); });
  EXPECT_TRUE(eventually([&] {
    v1::CommunicatorsReply reply;
    call(*admin_, &v1::NodeAdmin::Stub::ListCommunicators, v1::Empty(), &reply);
    return reply.communicators_size() == 1;
  }));
  launch_table_version_ = 0;  // a library from before there were any
  const Outcome second = join(b, unique_id('1'), 1, 2, nullptr);
  for (const Outcome& outcome : {first.get(), second}) {
    EXPECT_EQ(outcome.status.error_code(), StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(outcome.reason, Reason::Version);
    EXPECT_NE(outcome.status.error_message().find("rank 1"), std::string::npos)
        << outcome.status.error_message();
    EXPECT_NE(outcome.status.error_message().find("launch tables of version 0"), std::string::npos);
  }
  EXPECT_TRUE(worker_->formed().empty());
  const Session host = open_session("host:0");
  EXPECT_TRUE(join(host, unique_id('2'), 0, 1, nullptr).status.ok()) << "the host has none";
}

TEST_F(GpuTest, AHostSessionOfTheSameNodeHasNoMailbox) {
  start({kFirst});
  const Session session = open_session("host:0");
  v1::CreateCommunicatorReply reply;
  ASSERT_TRUE(join(session, unique_id('1'), 0, 1, &reply).status.ok());
  EXPECT_EQ(reply.fd_ticket(), 0u);
  EXPECT_EQ(host_worker_->formed()[0].ranks[0].device, "");
  EXPECT_EQ(join(session, unique_id('2'), 0, 1, &reply, 3000, kFirst).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(GpuTest, RefusesTwoRanksOnOneGpuAndTellsBoth) {
  start({kFirst, kSecond});
  const Session a = open_session();
  const Session b = open_session();
  auto first =
      std::async(std::launch::async, [&] { return join(a, unique_id('1'), 0, 2, nullptr); });
  const Outcome second = join(b, unique_id('1'), 1, 2, nullptr);
  for (const Outcome& outcome : {first.get(), second}) {
    EXPECT_EQ(outcome.status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(outcome.status.error_message().find("are both on " + kFirst), std::string::npos)
        << outcome.status.error_message();
  }
  EXPECT_TRUE(worker_->formed().empty());
}

TEST_F(GpuTest, HandsOnHowManySmsTheRanksAskForAndRefusesThoseThatDisagree) {
  start({kFirst, kSecond});
  const Session a = open_session(kFirst);
  const Session b = open_session(kSecond);
  most_sms_ = 16;
  auto alike =
      std::async(std::launch::async, [&] { return join(a, unique_id('1'), 0, 2, nullptr); });
  EXPECT_TRUE(join(b, unique_id('1'), 1, 2, nullptr).status.ok());
  EXPECT_TRUE(alike.get().status.ok());
  ASSERT_EQ(worker_->formed().size(), 1u);
  EXPECT_EQ(worker_->formed()[0].most_sms, 16u);
  auto first =
      std::async(std::launch::async, [&] { return join(a, unique_id('2'), 0, 2, nullptr); });
  EXPECT_TRUE(eventually([&] {
    v1::CommunicatorsReply reply;
    call(*admin_, &v1::NodeAdmin::Stub::ListCommunicators, v1::Empty(), &reply);
    return std::ranges::any_of(reply.communicators(), [](const v1::CommunicatorStatus& one) {
      return one.state() == "forming 1/2";
    });
  }));
  most_sms_ = 0;
  const Outcome second = join(b, unique_id('2'), 1, 2, nullptr);
  for (const Outcome& outcome : {first.get(), second}) {
    EXPECT_EQ(outcome.reason, Reason::Mismatch);
    EXPECT_NE(outcome.status.error_message().find("rank 0 says 16 and rank 1 says 0"),
              std::string::npos)
        << outcome.status.error_message();
  }
}

TEST_F(GpuTest, RefusesMoreRanksThanTheKernelsServeAndUnknownGpus) {
  start({kFirst});
  const Session session = open_session();
  const Outcome many = join(session, unique_id('1'), 0, 9, nullptr);
  EXPECT_EQ(many.reason, Reason::Unsupported);
  EXPECT_NE(many.status.error_message().find("1 to 8 ranks"), std::string::npos);
  const Outcome unknown = join(session, unique_id('1'), 0, 2, nullptr, 3000, kSecond);
  EXPECT_EQ(unknown.status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_NE(unknown.status.error_message().find(kFirst), std::string::npos);
}

TEST_F(GpuTest, ARankWithoutAMailboxLeavesItsSeat) {
  settings_.quota.communicators = 1;
  start({kFirst});
  const Session session = open_session();
  worker_->refuse_mailbox = true;
  v1::CreateCommunicatorReply reply;
  EXPECT_EQ(join(session, unique_id('1'), 0, 1, &reply).reason, Reason::OutOfMemory);
  EXPECT_EQ(worker_->left().size(), 1u);
  worker_->refuse_mailbox = false;
  EXPECT_TRUE(join(session, unique_id('2'), 0, 1, &reply).status.ok()) << "its quota is free again";
}

}  // namespace
}  // namespace arcomm::test
