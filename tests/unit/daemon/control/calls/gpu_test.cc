// What is different for sessions on GPUs: who is on which, mailboxes, and memory by handle.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <future>
#include <optional>

#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/launch_table.h"
#include "tests/unit/daemon/control/access/http2_bytes.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

const std::string kFirst = "GPU-11111111-2222-3333-4444-555555555555";
const std::string kSecond = "GPU-66666666-7777-8888-9999-000000000000";

// A process of a uid of its own that has attached, and says nothing more.
pid_t attach_as_another(const std::string& client_socket) {
  const group* known = ::getgrnam("nogroup");
  if (known == nullptr ||
      ::chmod(std::filesystem::path(client_socket).parent_path().c_str(), 0755) != 0)
    return -1;
  const gid_t gid = known->gr_gid;
  v1::AttachRequest request;
  request.set_ring_abi_major(kRingAbiMajor);
  request.set_process_name("another");
  const std::string message = request.SerializeAsString();
  const std::string prefix{'\0', '\0', '\0', '\0', static_cast<char>(message.size())};
  const std::string bytes = greeting() + call_of(1, "/arcommd.v1.NodeControl/Attach") +
                            frame(0, prefix + message, kEndStream, 1);
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (::setgroups(1, &gid) != 0 || ::setgid(54'322) != 0 || ::setuid(54'321) != 0) ::_exit(2);
  const int connection = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, client_socket.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
    ::_exit(3);
  for (;;) ::pause();
}

class GpuTest : public ControlTest {
 protected:
  void SetUp() override {
    ControlTest::SetUp();
    settings_.quota.registered_bytes = 8 << 20;
  }
  v1::RegisterBufferRequest register_request(const Session& session) const {
    v1::RegisterBufferRequest request;
    *request.mutable_session() = session.ref;
    request.set_ipc_handle(std::string(64, 'h'));
    request.set_offset_bytes(512);
    request.set_length_bytes(1024);
    request.set_allocation_bytes(4096);
    return request;
  }
  // Of two ranks; what the worker was told of the first.
  InStreamHindrance form(const Session& session, char fill) {
    auto other = std::async(std::launch::async, [&] {
      return join(session, unique_id(fill), 1, 2, nullptr, 3000, kSecond).status.ok();
    });
    EXPECT_TRUE(join(session, unique_id(fill), 0, 2, nullptr, 3000, kFirst).status.ok());
    EXPECT_TRUE(other.get());
    return worker_->formed().back().ranks.front().in_stream_hindrance;
  }
  Outcome register_buffer(const v1::RegisterBufferRequest& request, v1::BufferReply* reply) {
    return call(*client_, &v1::NodeControl::Stub::RegisterBuffer, request, reply);
  }
  // The descriptors of a ticket.
  static std::size_t fetch(Session& session, std::uint64_t ticket) {
    std::vector<UniqueFd> fds;
    const auto answer = session.fds->ask(fd_request(FdMessageKind::Fetch, ticket), {}, &fds);
    return answer && answer->code == 0 ? fds.size() : 0;
  }
};

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

TEST_F(GpuTest, NobodyIsLentAllOfAGpusMemory) {
  settings_.quota.registered_bytes = 1 << 30;
  settings_.quota.buffers = 100;
  gpu_bytes_ = {8 * FakeWorker::kGranule, 8 * FakeWorker::kGranule};
  start({kFirst, kSecond});
  const Session session = open_session();
  v1::BufferReply buffer;
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(allocate(session, FakeWorker::kGranule, &buffer, kSecond).status.ok()) << i;
  const Outcome refused = allocate(session, FakeWorker::kGranule, &buffer, kSecond);
  EXPECT_EQ(refused.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.reason, Reason::OutOfMemory);
  EXPECT_NE(refused.status.error_message().find(kSecond + " is short of bytes"), std::string::npos)
      << refused.status.error_message();
  EXPECT_TRUE(allocate(session, FakeWorker::kGranule, &buffer, kFirst).status.ok());
  const v1::LimitStatus told = limit("bytes of " + kSecond);
  EXPECT_EQ(told.used(), 6 * FakeWorker::kGranule);
  EXPECT_EQ(told.of_node(), 8 * FakeWorker::kGranule);
  EXPECT_TRUE(told.in_bytes());
  ASSERT_TRUE(detach(session).status.ok());
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

// As long as the user is the only one, all of it is that user's.
TEST_F(GpuTest, WhoHasAllThatIsInStreamGetsNoMoreOnceAnotherUserIsThere) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  settings_.access.group = "nogroup";
  start({kFirst, kSecond});
  worker_->in_stream = true;
  const Session session = open_session();
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  EXPECT_EQ(form(session, 'b'), InStreamHindrance::None);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 2u);

  const pid_t other = attach_as_another(path("client.sock"));
  ASSERT_GT(other, 0);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 2; }));
  EXPECT_EQ(form(session, 'c'), InStreamHindrance::KeptForOthers);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 2u);
  ::kill(other, SIGKILL);
  EXPECT_EQ(::waitpid(other, nullptr, 0), other);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 1; }));
  EXPECT_EQ(form(session, 'd'), InStreamHindrance::None);
}

TEST_F(GpuTest, ACommunicatorThatIsBuiltAnewKeepsItsInStreamRoom) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  settings_.access.group = "nogroup";
  start({kFirst, kSecond});
  worker_->in_stream = true;
  const Session session = open_session();
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  const pid_t other = attach_as_another(path("client.sock"));
  ASSERT_GT(other, 0);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 2; }));
  worker_->revoke(worker_->formed().back().unique_id, 1, Reason::RemoteDied);
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 1u);
  EXPECT_EQ(form(session, 'b'), InStreamHindrance::KeptForOthers);
  ::kill(other, SIGKILL);
  EXPECT_EQ(::waitpid(other, nullptr, 0), other);
}

// The worker decides for all ranks what follows from it.
TEST_F(GpuTest, TellsTheWorkerWhatKeepsARankFromInStreamOperations) {
  start({kFirst, kSecond});
  const Session session = open_session("gpu");
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('1'));
  request.set_ranks(1);
  request.set_timeout_ms(3000);
  request.add_visible_gpus(kFirst);
  request.add_visible_gpus(kSecond);
  request.set_in_stream_abi(kInStreamAbi - 1);
  request.set_in_stream_hindrance(static_cast<std::uint32_t>(InStreamHindrance::SmLimit));
  request.set_launch_table_version(kLaunchTableVersion);
  v1::CreateCommunicatorReply reply;
  ASSERT_TRUE(
      call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply).status.ok());
  const auto formed = worker_->formed();
  ASSERT_EQ(formed.size(), 1u);
  const RankSpec& rank = formed[0].ranks[0];
  EXPECT_THAT(rank.visible_gpus, testing::ElementsAre(kFirst, kSecond));
  EXPECT_EQ(rank.in_stream_abi, kInStreamAbi - 1);
  EXPECT_EQ(rank.in_stream_hindrance, InStreamHindrance::SmLimit);
  const Result<LaunchTable> launches = LaunchTable::decode(reply.launch_table());
  ASSERT_TRUE(launches.ok()) << launches.error().message;
  EXPECT_EQ(*launches, worker_->launches);
}

// It would take ways of its own, and the others would wait for it until their deadlines.
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

TEST_F(GpuTest, AllocatesOnTheNamedGpuAndChargesWholeGranules) {
  start({kFirst, kSecond});
  Session session = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 5000, &reply, kSecond).status.ok());
  EXPECT_EQ(reply.length_bytes(), FakeWorker::kGranule);
  EXPECT_EQ(worker_->buffer_seeds().at(0).device, kSecond);
  EXPECT_EQ(metrics_.registered_bytes.value(), static_cast<std::int64_t>(FakeWorker::kGranule));
  EXPECT_EQ(fetch(session, reply.fd_ticket()), 1u);
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  release.set_buffer(reply.buffer());
  v1::Empty empty;
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, release, &empty).status.ok());
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  EXPECT_EQ(allocate(session, 0, &reply).status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(allocate(session, ~0ull, &reply).status.error_code(), StatusCode::OUT_OF_RANGE);
}

TEST_F(GpuTest, AnAllocationThatRoundsUpPastTheQuotaIsGivenBack) {
  settings_.quota.registered_bytes = FakeWorker::kGranule + 4096;
  start({kFirst});
  const Session session = open_session();
  v1::BufferReply reply;
  EXPECT_EQ(allocate(session, FakeWorker::kGranule + 1, &reply).reason, Reason::Quota);
  EXPECT_TRUE(eventually([&] { return worker_->buffers() == 0; }));
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  EXPECT_TRUE(allocate(session, FakeWorker::kGranule, &reply).status.ok());
}

TEST_F(GpuTest, RegistersAnAllocationByItsHandle) {
  start({kFirst, kSecond});
  const Session session = open_session(kSecond);
  v1::BufferReply reply;
  const Outcome outcome = register_buffer(register_request(session), &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(reply.length_bytes(), 1024u);
  const auto seeds = worker_->buffer_seeds();
  ASSERT_EQ(seeds.size(), 1u);
  EXPECT_EQ(seeds[0].device, kSecond);
  EXPECT_EQ(seeds[0].offset_bytes, 512u);
  EXPECT_EQ(seeds[0].allocation_bytes, 4096u);
  ASSERT_TRUE(seeds[0].handle);
  EXPECT_EQ(seeds[0].handle->front(), std::byte{'h'});
  EXPECT_EQ(metrics_.registered_bytes.value(), 1024);
}

TEST_F(GpuTest, RegistersAnOfferedDescriptorWithItsGpu) {
  start({kFirst, kSecond});
  Session session = open_session();
  const UniqueFd memory(::memfd_create("exported", MFD_CLOEXEC));
  const auto offer = session.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
  ASSERT_TRUE(offer && offer->code == 0);
  v1::RegisterBufferRequest request = register_request(session);
  request.clear_ipc_handle();
  request.set_offered_fd(offer->ticket);
  request.set_device(kSecond);
  v1::BufferReply reply;
  const Outcome outcome = register_buffer(request, &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_FALSE(worker_->buffer_seeds().at(0).handle);
  EXPECT_EQ(worker_->buffer_seeds().at(0).device, kSecond);
}

TEST_F(GpuTest, RefusesHandlesAndRangesThatCannotBe) {
  start({kFirst});
  Session session = open_session();
  v1::BufferReply reply;
  for (const std::size_t size : {1u, 63u, 65u, 4096u}) {
    v1::RegisterBufferRequest request = register_request(session);
    request.set_ipc_handle(std::string(size, 'h'));
    EXPECT_EQ(register_buffer(request, &reply).status.error_code(), StatusCode::INVALID_ARGUMENT)
        << size;
  }
  v1::RegisterBufferRequest request = register_request(session);
  request.clear_ipc_handle();
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::UnknownHandle);
  request = register_request(session);
  request.set_offset_bytes(~0ull - 511);
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::OutOfBounds);
  request = register_request(session);
  request.set_length_bytes(4096 - 512 + 1);
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::OutOfBounds);
  request.set_length_bytes(0);
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::BadValue);
  request = register_request(session);
  request.set_allocation_bytes(~0ull);
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::OutOfBounds);
  const UniqueFd memory(::memfd_create("exported", MFD_CLOEXEC));
  const auto offer = session.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
  ASSERT_TRUE(offer && offer->code == 0);
  request = register_request(session);
  request.set_offered_fd(offer->ticket);
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::BadValue) << "handle and descriptor";
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
}

// Memory that is registered in pieces.
class GpuChunksTest : public GpuTest {
 protected:
  static constexpr std::uint64_t kPiece = 4096;

  void SetUp() override {
    GpuTest::SetUp();
    start({kFirst, kSecond});
    session_.emplace(open_session(kSecond));
  }
  std::uint64_t offer() {
    const UniqueFd memory(::memfd_create("piece", MFD_CLOEXEC));
    const auto answer = session_->fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
    EXPECT_TRUE(answer && answer->code == 0);
    return answer ? answer->ticket : 0;
  }
  v1::RegisterBufferRequest pieces(std::size_t count) {
    v1::RegisterBufferRequest request;
    *request.mutable_session() = session_->ref;
    for (std::size_t i = 0; i < count; ++i) {
      v1::MemoryChunk* piece = request.add_chunks();
      piece->set_offered_fd(offer());
      piece->set_bytes(kPiece);
    }
    request.set_length_bytes(count * kPiece);
    request.set_allocation_bytes(count * kPiece);
    return request;
  }
  void expect_refused(const v1::RegisterBufferRequest& request, Reason reason, const char* word) {
    v1::BufferReply reply;
    const Outcome refused = register_buffer(request, &reply);
    EXPECT_EQ(refused.reason, reason) << word;
    EXPECT_NE(refused.status.error_message().find(word), std::string::npos)
        << refused.status.error_message();
    EXPECT_EQ(metrics_.registered_bytes.value(), 0);
    EXPECT_EQ(worker_->buffers(), 0u);
  }
  // The session has no offer left but `others`.
  void expect_no_offers(std::size_t others = 0) {
    std::size_t room = 0;
    for (; room <= kMaxOffers; ++room) {
      const UniqueFd memory(::memfd_create("piece", MFD_CLOEXEC));
      const auto answer = session_->fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
      if (!answer || answer->code != 0) break;
    }
    EXPECT_EQ(room, kMaxOffers - others);
  }

  std::optional<Session> session_;
};

TEST_F(GpuChunksTest, SaysHowManyPiecesItTakes) {
  EXPECT_EQ(session_->attached.max_chunks(), kMostChunks);
  EXPECT_EQ(open_session("host:0").attached.max_chunks(), 0u);
}

TEST_F(GpuChunksTest, RegistersPiecesInTheirOrder) {
  v1::RegisterBufferRequest request = pieces(3);
  request.mutable_chunks(1)->set_bytes(3 * kPiece);
  v1::MemoryChunk* by_handle = request.add_chunks();
  by_handle->set_fabric_handle(std::string(kFabricHandleBytes, 'f'));
  by_handle->set_bytes(kPiece);
  request.set_length_bytes(6 * kPiece);
  request.set_allocation_bytes(6 * kPiece);
  v1::BufferReply reply;
  const Outcome outcome = register_buffer(request, &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(reply.length_bytes(), 6 * kPiece);
  const auto seeds = worker_->buffer_seeds();
  ASSERT_EQ(seeds.size(), 1u);
  EXPECT_EQ(seeds[0].device, kSecond);
  EXPECT_FALSE(seeds[0].handle);
  ASSERT_EQ(seeds[0].chunks.size(), 4u);
  EXPECT_EQ(seeds[0].chunks[1].bytes, 3 * kPiece);
  EXPECT_EQ(seeds[0].chunks[3].fabric.back(), std::byte{'f'});
  EXPECT_EQ(metrics_.registered_bytes.value(), static_cast<std::int64_t>(6 * kPiece));
  expect_no_offers();
}

TEST_F(GpuChunksTest, RegistersAsManyAsItSaysAndNoMore) {
  v1::BufferReply reply;
  const Outcome most = register_buffer(pieces(kMostChunks), &reply);
  EXPECT_TRUE(most.status.ok()) << most.status.error_message();
  const Outcome more = register_buffer(pieces(kMostChunks + 1), &reply);
  EXPECT_EQ(more.status.error_code(), StatusCode::OUT_OF_RANGE);
  expect_no_offers();
}

TEST_F(GpuChunksTest, RefusesPiecesThatCannotBeAndKeepsNoOffer) {
  v1::RegisterBufferRequest request = pieces(2);
  request.set_allocation_bytes(kPiece);
  request.set_length_bytes(kPiece);
  expect_refused(request, Reason::OutOfBounds, "allocation_bytes says 4096");
  request = pieces(2);
  request.mutable_chunks(0)->set_bytes(0);
  expect_refused(request, Reason::BadValue, "a piece of 0 bytes");
  request = pieces(2);
  request.mutable_chunks(1)->set_bytes(~0ull);
  expect_refused(request, Reason::BadValue, "not a size");
  request = pieces(2);
  request.mutable_chunks(1)->set_fabric_handle(std::string(kFabricHandleBytes, 'f'));
  expect_refused(request, Reason::BadValue, "this one has a descriptor");
  request = pieces(1);
  request.add_chunks()->set_bytes(kPiece);
  expect_refused(request, Reason::BadValue, "no descriptor and a handle of 0 bytes");
  request = pieces(2);
  request.set_ipc_handle(std::string(64, 'h'));
  expect_refused(request, Reason::BadValue, "in pieces");
  request = pieces(2);
  request.mutable_chunks(0)->set_offered_fd(12345678);
  v1::BufferReply reply;
  EXPECT_EQ(register_buffer(request, &reply).reason, Reason::UnknownHandle);
  request = pieces(2);
  request.set_length_bytes(2 * kPiece + 1);
  expect_refused(request, Reason::OutOfBounds, "not inside");
  expect_no_offers(1);  // the piece whose place an unknown ticket took
}

TEST_F(GpuChunksTest, AWorkerThatCannotMapThemGivesTheQuotaBack) {
  worker_->refuse_buffers = true;
  expect_refused(pieces(3), Reason::OutOfMemory, "cannot map");
  expect_no_offers();
}

TEST_F(GpuChunksTest, PiecesBeyondTheQuotaAreRefused) {
  v1::RegisterBufferRequest request = pieces(2);
  request.mutable_chunks(0)->set_bytes(8 << 20);
  request.set_length_bytes((8 << 20) + kPiece);
  request.set_allocation_bytes((8 << 20) + kPiece);
  expect_refused(request, Reason::Quota, "quota.registered_bytes");
}

TEST_F(GpuChunksTest, ForgetsOffersThatAreWithdrawn) {
  v1::ReleaseBufferRequest request;
  *request.mutable_session() = session_->ref;
  for (std::size_t i = 1; i < kMaxOffers; ++i) request.add_offered_fds(offer());
  request.add_offered_fds(987654321);  // never given: no matter
  v1::Empty empty;
  const Outcome outcome = call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, request, &empty);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  expect_no_offers();
}

}  // namespace
}  // namespace arcomm::test
