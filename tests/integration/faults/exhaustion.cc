// No memory, no descriptors, no file size: a clean error, nothing half made, nothing lost. Fault
// matrix 30 and 43.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Exhaustion : public NodeTest {};

void expect_exhausted(const Reply& reply) {
  EXPECT_EQ(reply.code, arcResourceExhausted) << reply.to_string();
  EXPECT_TRUE(reply.reason == arcReasonOutOfMemory || reply.reason == arcReasonQuota)
      << reply.to_string();
}

TEST_F(Exhaustion, AThousandFailedAllocationsLeaveNothingBehind) {
  DaemonProcess::Options options;
  // A shared-memory file may not pass this: what a full /dev/shm or a memory cgroup does, without
  // filling either.
  options.limits = {{RLIMIT_FSIZE, 32u << 20}};
  start(options);
  const auto client = ClientProcess::start(node());
  client->expect_ok("init");
  client->expect_ok("alloc small 1048576");
  expect_exhausted(client->ask("alloc big 67108864"));
  const std::size_t descriptors = node().child().open_descriptors();
  const std::uint64_t resident = node().child().resident_bytes();
  const double registered = scrape().value("arcomm_registered_bytes");
  for (int i = 0; i < 1000; ++i) {
    const Reply reply = client->ask("alloc big 67108864");
    ASSERT_EQ(reply.code, arcResourceExhausted) << reply.to_string();
    ASSERT_LT(reply.took, kPrompt);
  }
  EXPECT_LE(node().child().open_descriptors(), descriptors + 2);
  EXPECT_LT(node().child().resident_bytes(), resident + (16u << 20) + kQuarantineBytes);
  EXPECT_EQ(scrape().value("arcomm_registered_bytes"), registered);
  // No operation came of it: nothing for the flight recorder.
  expect_metric_at_least("arcomm_control_calls_total", {"ResourceExhausted"}, 1001);
  expect_refusal_told("AllocateBuffer", client->pid(), "ResourceExhausted");
  client->expect_ok("alloc fits 16777216");
}

TEST_F(Exhaustion, AllocationsThatOutlastTheirCallersPatienceLeaveNothingBehind) {
  start();
  const auto client = ClientProcess::start(node());
  // Every call of this client has so long.
  ASSERT_TRUE(eventually(kPrompt, [&] { return client->ask("init 60").ok(); }));
  const std::size_t descriptors = node().child().open_descriptors();
  for (int i = 0; i < 20; ++i) {
    const Reply reply = client->ask("alloc big 1073741824");  // takes several times as long
    ASSERT_EQ(reply.code, arcDeadlineExceeded) << reply.to_string();
    expect_metric_settles("arcomm_registered_bytes", 0);
    expect_metric_settles("arcomm_buffers", 0);
  }
  // More than a session may leave unfetched, and each asked while the daemon cannot answer.
  for (int i = 0; i < 70; ++i) {
    node().freeze();
    const Reply reply = client->ask("alloc small 4096");
    node().thaw();
    ASSERT_EQ(reply.code, arcDeadlineExceeded) << reply.to_string();
  }
  expect_metric_settles("arcomm_registered_bytes", 0);
  expect_metric_settles("arcomm_buffers", 0);
  EXPECT_TRUE(
      eventually(kPrompt, [&] { return node().child().open_descriptors() <= descriptors + 2; }));
  EXPECT_TRUE(eventually(kPrompt, [&] { return client->ask("alloc fits 1048576").ok(); }))
      << "what was not answered in time still counts against the session";
}

// The daemon cannot always tell that a caller has stopped waiting: the call's time counts from when
// the request was read, and the answer leaves before the hang-up arrives.
TEST_F(Exhaustion, MemoryThatNobodyFetchesIsReleasedOnceItsCallersTimeIsOver) {
  start();
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const Result<RawSession::Buffer> kept = (*session)->allocate(8192);
  ASSERT_TRUE(kept.ok()) << kept.error().to_string();
  // More than may wait at a time, so that later ones find room again.
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 40; ++j) {
      const Status given = (*session)->allocate_unfetched(4096, kPrompt);
      ASSERT_TRUE(given.ok()) << given.error().to_string();
    }
    expect_metric_settles("arcomm_buffers", 1, 3 * kPrompt);
  }
  expect_metric_settles("arcomm_registered_bytes", 8192);
  EXPECT_TRUE((*session)->release(kept->id).ok());
}

// The daemon maps it each time, so each is charged to what the node has of mappings: by the
// machine's own limit half of vm.max_map_count, of which one user alone gets half.
TEST_F(Exhaustion,
       TheSameMemoryIsAMappingEachTimeItIsRegisteredAndLeavesRoomForAnotherUser) {  // 43
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  DaemonProcess::Options options;
  options.settings["access.group"] = "nogroup";
  start(options);
  const auto all = limit_of("mappings")["of_node"].get<std::size_t>();
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const UniqueFd memory(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  std::size_t registered = 0;
  Result<RawSession::Buffer> last = (*session)->register_memory(memory.get(), 0, 4096);
  for (; last.ok() && registered < 70'000; ++registered)
    last = (*session)->register_memory(memory.get(), 0, 4096);
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().reason, Reason::Quota) << last.error().to_string();
  EXPECT_NE(last.error().message.find("quota.node_mappings"), std::string::npos)
      << last.error().to_string();
  EXPECT_EQ(registered + 1, (all + 1) / 2) << "its session is one, too";
  EXPECT_EQ(limit_of("host_bytes")["used"], registered * 4096);
  ClientProcess::Options another;
  another.environment = node().environment();
  another.uid = another.gid = 65534;
  const auto client = ClientProcess::start(another);
  client->expect_ok("init 5000");
  client->expect_ok("comm c0 1 " + client->expect_ok("id") + " 0");
  client->expect_ok("allreduce c0 1000 float32 sum mem=alloc");
  client->expect_ok("finalize");
  session->reset();
  EXPECT_TRUE(eventually(kPrompt, [&] { return used("mappings") == 0; }));
}

TEST_F(Exhaustion, ADaemonWithoutDescriptorsRefusesAndRecovers) {
  DaemonProcess::Options options;
  options.limits = {{RLIMIT_NOFILE, 128}};
  start(options);
  Clients clients;
  Reply refused;
  for (int i = 0; i < 60 && (i == 0 || refused.code == arcSuccess); ++i) {
    clients.push_back(ClientProcess::start(node()));
    ASSERT_NE(clients.back(), nullptr);
    refused = clients.back()->ask("init 3000", milliseconds(20000));
  }
  ASSERT_TRUE(refused.heard);
  EXPECT_TRUE(refused.code == arcResourceExhausted || refused.code == arcUnavailable ||
              refused.code == arcDeadlineExceeded)
      << refused.to_string();
  EXPECT_GE(clients.size(), 5u);
  expect_log("Too many open files");  // whatever asked for the last descriptor
  ASSERT_TRUE(node().running());
  // Those inside are served all the while.
  clients[0]->expect_ok("comm c0 1 " + clients[0]->expect_ok("id") + " 0");
  clients.back()->child().kill();
  clients.pop_back();
  clients.resize(2);
  EXPECT_TRUE(eventually(milliseconds(5000), [&] {
    const auto next = ClientProcess::start(node());
    return next->ask("init 3000").ok();
  })) << "no session after the descriptors came back";
}

TEST_F(Exhaustion, AClientWithoutDescriptorsIsToldAndCanGoOnLater) {
  start();
  ClientProcess::Options options;
  options.environment = node().environment();
  options.limits = {{RLIMIT_NOFILE, 24}};
  const auto poor = ClientProcess::start(options);
  poor->expect_ok("init");
  Reply reply;
  int made = 0;
  for (; made < 64; ++made) {
    reply = poor->ask("alloc b" + std::to_string(made) + " 4096");
    if (!reply.ok()) break;
  }
  if (made < 64) {
    EXPECT_TRUE(reply.heard) << "the client died of it";
    EXPECT_EQ(reply.code, arcResourceExhausted) << reply.to_string();
  }
  poor->expect_ok("comm c0 1 " + poor->expect_ok("id") + " 0");
  poor->expect_ok("free b0");
  poor->expect_ok("allreduce c0 100 float32 sum");
}

#ifndef ARCOMM_SANITIZED  // whose shadow needs terabytes of address space
TEST_F(Exhaustion, ADaemonWithoutAddressSpaceRefusesWhatDoesNotFit) {
  DaemonProcess::Options options;
  options.limits = {{RLIMIT_AS, std::uint64_t{1600} << 20}};
  start(options);
  const auto client = ClientProcess::start(node());
  client->expect_ok("init");
  const std::size_t descriptors = node().child().open_descriptors();
  for (int i = 0; i < 20; ++i) {
    // The memory can be made, but the daemon cannot map it.
    const Reply reply = client->ask("alloc huge 1073741824");
    ASSERT_EQ(reply.code, arcResourceExhausted) << reply.to_string();
    // Refused memory is closed off the control loop, so a moment later. Stops before a leak of this
    // size harms the machine.
    ASSERT_TRUE(
        eventually(kPrompt, [&] { return node().child().open_descriptors() <= descriptors + 2; }));
  }
  expect_refusal_told("AllocateBuffer", client->pid(), "ResourceExhausted");
  client->expect_ok("alloc small 1048576");
  client->expect_ok("comm c0 1 " + client->expect_ok("id") + " 0");
  client->expect_ok("allreduce c0 100000 float32 sum mem=alloc");
}
#endif

}  // namespace
}  // namespace arcomm::support
