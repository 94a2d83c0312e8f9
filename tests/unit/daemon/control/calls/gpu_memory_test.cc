// Memory of GPUs: allocated, registered by handle or descriptor, and shared out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/daemon/control/calls/gpu_fixture.h"

namespace arcomm::test {
namespace {

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

// Its peers' kernels may be at work in it, and the worker lets go of it when they cannot be.
TEST_F(GpuTest, TheMailboxOfARankThatHasLeftIsChargedForUntilItHasGone) {
  start({kFirst});
  worker_->keeps_released = worker_->in_stream = true;
  const Session session = open_session(kFirst);
  const std::uint64_t mailbox_and_exchange = 2 * FakeWorker::kGranule;
  const auto used = [this] { return limit("bytes of " + kFirst).used(); };
  const auto let_go = [this] {
    worker_->let_go_of_released(0, 0, [](const Result<void>&) {});
    return true;
  };
  v1::CreateCommunicatorReply joined;
  ASSERT_TRUE(join(session, unique_id('a'), 0, 1, &joined).status.ok());
  EXPECT_EQ(used(), mailbox_and_exchange);
  v1::DestroyCommunicatorRequest destroy;
  *destroy.mutable_session() = session.ref;
  destroy.set_member(joined.member());
  v1::Empty empty;
  ASSERT_TRUE(
      call(*client_, &v1::NodeControl::Stub::DestroyCommunicator, destroy, &empty).status.ok());
  EXPECT_EQ(used(), mailbox_and_exchange) << "it is still there";
  let_go();
  EXPECT_TRUE(eventually([&] { return used() == 0; }));

  ASSERT_TRUE(join(session, unique_id('b'), 0, 1, &joined).status.ok());
  ASSERT_TRUE(detach(session).status.ok());
  EXPECT_EQ(used(), mailbox_and_exchange) << "with its session gone";
  let_go();
  EXPECT_TRUE(eventually([&] { return used() == 0; }));
}

// Its buffers and mappings are limited together with the host's.
class SharedLimitsTest : public GpuTest {
 protected:
  // A buffer of a GPU that has been released, and has not gone.
  Session release_one() {
    start({kFirst});
    worker_->keeps_released = true;
    Session session = open_session(kFirst);
    v1::BufferReply made;
    EXPECT_TRUE(allocate(session, FakeWorker::kGranule, &made).status.ok());
    EXPECT_TRUE(release(session, made).status.ok());
    return session;
  }
  Outcome release(const Session& session, const v1::BufferReply& made) {
    v1::ReleaseBufferRequest request;
    *request.mutable_session() = session.ref;
    request.set_buffer(made.buffer());
    v1::Empty empty;
    return call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, request, &empty);
  }
};

TEST_F(SharedLimitsTest, HostMemoryIsAllocatedOnceReleasedGpuMemoryHasGone) {
  settings_.quota.buffers = 1;
  const Session on_gpu = release_one();
  const Session on_host = open_session("host:0");
  worker_->is_held_up = true;
  v1::BufferReply made;
  const Outcome refused = allocate(on_host, 4096, &made);
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_NE(refused.status.error_message().find("a GPU is full"), std::string::npos)
      << refused.status.error_message();
  worker_->is_held_up = false;
  const Outcome allocated = allocate(on_host, 4096, &made);
  EXPECT_TRUE(allocated.status.ok()) << allocated.status.error_message();
  EXPECT_EQ(worker_->asked_to_let_go, 2);
  EXPECT_EQ(allocate(on_host, 4096, &made).reason, Reason::Quota);
}

TEST_F(SharedLimitsTest, HostMemoryIsRegisteredOnceReleasedGpuMemoryHasGone) {
  settings_.quota.buffers = 1;
  const Session on_gpu = release_one();
  const Session on_host = open_session("host:0");
  const UniqueFd memory(::memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto offer = on_host.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
  ASSERT_TRUE(offer && offer->code == 0);
  v1::RegisterBufferRequest request;
  *request.mutable_session() = on_host.ref;
  request.set_offered_fd(offer->ticket);
  request.set_length_bytes(4096);
  v1::BufferReply made;
  const Outcome registered = register_buffer(request, &made);
  EXPECT_TRUE(registered.status.ok()) << registered.status.error_message();
  EXPECT_EQ(worker_->asked_to_let_go, 1);
}

// Of four mappings one user has two at most.
TEST_F(SharedLimitsTest, ASessionIsAttachedOnceReleasedGpuMemoryHasGone) {
  settings_.quota.node_mappings = 4;
  const Session on_gpu = release_one();
  v1::AttachReply attached;
  const Outcome another = attach(attached, kRingAbiMajor, "host:0");
  EXPECT_TRUE(another.status.ok()) << another.status.error_message();
  EXPECT_EQ(worker_->asked_to_let_go, 1);
  EXPECT_EQ(attach(attached, kRingAbiMajor, "host:0").reason, Reason::Quota);
}

// A worker that hangs is waited for ten seconds where it alone can answer.
TEST_F(SharedLimitsTest, NobodyOfTheHostWaitsForLongForAWorkerOfGpusThatHangs) {
  settings_.quota.buffers = 1;
  const Session on_gpu = release_one();
  const Session on_host = open_session("host:0");
  worker_->is_held_up = worker_->silent = true;
  v1::BufferReply made;
  const auto since = std::chrono::steady_clock::now();
  const Outcome refused = allocate(on_host, 4096, &made);
  EXPECT_LT(std::chrono::steady_clock::now() - since, milliseconds(5000));
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_NE(refused.status.error_message().find("did not let go"), std::string::npos)
      << refused.status.error_message();
  worker_->silent = false;
}

TEST_F(SharedLimitsTest, NoGpuStopsForWhoLacksWhatTheHostAloneHas) {
  settings_.quota.sessions = 1;
  const Session on_gpu = release_one();
  v1::AttachReply attached;
  EXPECT_EQ(attach(attached, kRingAbiMajor, "host:0").reason, Reason::Quota);
  EXPECT_EQ(worker_->asked_to_let_go, 0);
}

TEST_F(GpuTest, AllocatesOnTheNamedGpuAndChargesWholeGranules) {
  start({kFirst, kSecond});
  Session session = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 5000, &reply, kSecond).status.ok());
  EXPECT_EQ(reply.length_bytes(), FakeWorker::kGranule);
  EXPECT_EQ(worker_->buffer_specs().at(0).device, kSecond);
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
  // The books hear of it after the worker.
  EXPECT_TRUE(eventually(
      [&] { return worker_->buffers() == 0 && metrics_.registered_bytes.value() == 0; }));
  EXPECT_TRUE(allocate(session, FakeWorker::kGranule, &reply).status.ok());
}

TEST_F(GpuTest, RegistersAnAllocationByItsHandle) {
  start({kFirst, kSecond});
  const Session session = open_session(kSecond);
  v1::BufferReply reply;
  const Outcome outcome = register_buffer(register_request(session), &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(reply.length_bytes(), 1024u);
  const auto specs = worker_->buffer_specs();
  ASSERT_EQ(specs.size(), 1u);
  EXPECT_EQ(specs[0].device, kSecond);
  EXPECT_EQ(specs[0].handle.offset_bytes, 512u);
  EXPECT_EQ(specs[0].handle.allocation_bytes, 4096u);
  EXPECT_EQ(specs[0].handle.kind, MemoryKind::CudaIpc);
  EXPECT_EQ(specs[0].handle.opaque.front(), std::byte{'h'});
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
  EXPECT_EQ(worker_->buffer_specs().at(0).handle.kind, MemoryKind::PosixFd);
  EXPECT_EQ(worker_->buffer_specs().at(0).device, kSecond);
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

}  // namespace
}  // namespace arcomm::test
