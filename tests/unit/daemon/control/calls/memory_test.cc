// Buffers, descriptors and tickets.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/support/sessions/lingering_socket.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

UniqueFd sealed_memfd(std::uint64_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

class MemoryTest : public ControlTest {
 protected:
  Outcome offer_and_register(Session& session, int fd, std::uint64_t offset, std::uint64_t length,
                             v1::BufferReply* reply) {
    const auto answer = session.fds->ask(fd_request(FdMessageKind::Offer), {fd});
    EXPECT_TRUE(answer && answer->code == 0);
    v1::RegisterBufferRequest request;
    *request.mutable_session() = session.ref;
    request.set_offered_fd(answer ? answer->ticket : 0);
    request.set_offset_bytes(offset);
    request.set_length_bytes(length);
    last_offer_ = request;
    return call(*client_, &v1::NodeControl::Stub::RegisterBuffer, request, reply);
  }
  v1::LimitStatus limit_of(const std::string& name) {
    const v1::StatusReply told = status();
    for (const v1::LimitStatus& limit : told.limits()) {
      if (limit.name() == name) return limit;
    }
    ADD_FAILURE() << "no limit " << name;
    return {};
  }
  v1::RegisterBufferRequest last_offer_;
};

TEST_F(MemoryTest, AllocatesWholePagesThatCannotShrink) {
  start();
  Session session = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 5000, &reply).status.ok());
  EXPECT_EQ(reply.length_bytes(), 8192u);
  std::vector<UniqueFd> fds;
  ASSERT_TRUE(session.fds->ask(fd_request(FdMessageKind::Fetch, reply.fd_ticket()), {}, &fds));
  ASSERT_EQ(fds.size(), 1u);
  struct stat info {};
  ASSERT_EQ(::fstat(fds[0].get(), &info), 0);
  EXPECT_EQ(info.st_size, 8192);
  EXPECT_EQ(info.st_blocks * 512, 8192) << "the pages must exist";
  EXPECT_NE(::ftruncate(fds[0].get(), 0), 0);
}

TEST_F(MemoryTest, ATicketServesOnceAndOnlyItsOwnSession) {
  start();
  Session mine = open_session();
  Session other = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(mine, 4096, &reply).status.ok());
  const FdMessage fetch = fd_request(FdMessageKind::Fetch, reply.fd_ticket());
  const auto stolen = other.fds->ask(fetch);
  ASSERT_TRUE(stolen);
  EXPECT_EQ(stolen->code, static_cast<std::uint32_t>(ErrorCode::NotFound));
  std::vector<UniqueFd> fds;
  const auto first = mine.fds->ask(fetch, {}, &fds);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->code, 0u);
  EXPECT_EQ(fds.size(), 1u);
  const auto second = mine.fds->ask(fetch);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->code, static_cast<std::uint32_t>(ErrorCode::NotFound));
}

TEST_F(MemoryTest, RegistersAnOfferedMemfdOnce) {
  start();
  Session session = open_session();
  const UniqueFd memory = sealed_memfd(16384, F_SEAL_SHRINK);
  v1::BufferReply reply;
  const Outcome outcome = offer_and_register(session, memory.get(), 4096, 8192, &reply);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(reply.fd_ticket(), 0u);
  EXPECT_EQ(worker_->buffers(), 1u);
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::RegisterBuffer, last_offer_, &reply)
                .status.error_code(),
            StatusCode::NOT_FOUND);
}

TEST_F(MemoryTest, RefusesMemoryThatCanShrinkOrIsTooShort) {
  start();
  Session session = open_session();
  v1::BufferReply reply;
  const UniqueFd loose = sealed_memfd(8192, 0);
  const Outcome refused = offer_and_register(session, loose.get(), 0, 8192, &reply);
  EXPECT_EQ(refused.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.reason, Reason::Unsupported);
  const UniqueFd memory = sealed_memfd(8192, F_SEAL_SHRINK);
  EXPECT_EQ(offer_and_register(session, memory.get(), 4096, 8192, &reply).reason,
            Reason::OutOfBounds);
  EXPECT_EQ(offer_and_register(session, memory.get(), ~0ull - 4095, 8192, &reply).reason,
            Reason::OutOfBounds);
  EXPECT_EQ(offer_and_register(session, memory.get(), 0, 0, &reply).reason, Reason::BadValue);
  EXPECT_EQ(offer_and_register(session, memory.get(), 100, 4096, &reply).reason, Reason::BadValue);
  EXPECT_EQ(worker_->buffers(), 0u);
  EXPECT_EQ(metrics_.buffers.value(), 0);
}

TEST_F(MemoryTest, RefusesAnOfferThatIsNoMemfdAndGoesOn) {
  start();
  Session session = open_session();
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto refused = session.fds->ask(fd_request(FdMessageKind::Offer), {file.get()});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, static_cast<std::uint32_t>(ErrorCode::FailedPrecondition));
  EXPECT_EQ(refused->reason, static_cast<std::uint32_t>(Reason::Unsupported));
  const UniqueFd memory = sealed_memfd(4096, F_SEAL_SHRINK);
  v1::BufferReply reply;
  EXPECT_TRUE(offer_and_register(session, memory.get(), 0, 4096, &reply).status.ok());
}

// The last close of a TCP socket that lingers with unsent bytes blocks for as long as its owner
// said: the daemon must serve others meanwhile.
TEST_F(MemoryTest, ServesOthersWhileAForeignDescriptorTakesItsTimeToClose) {
  start();
  Session session = open_session();
  support::LingeringSocket stranger(3);
  // Sent without waiting, closed here first, so that the daemon's close is the last.
  const FdMessage offer = fd_request(FdMessageKind::Offer);
  ASSERT_TRUE(session.fds->send_bytes(&offer, sizeof(offer), {stranger.end.get()}));
  stranger.end.reset();
  const auto before = std::chrono::steady_clock::now();
  ASSERT_TRUE(session.fds->receive());
  EXPECT_EQ(status().sessions(), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(1500));
}

TEST_F(MemoryTest, RefusesSparseMemoryThatTheMachineCouldNotFill) {
  settings_.quota.registered_bytes = ~0ull;
  start();
  Session session = open_session();
  const std::uint64_t huge = 1ull << 50;
  const UniqueFd memory = sealed_memfd(huge, F_SEAL_SHRINK);
  v1::BufferReply reply;
  EXPECT_EQ(offer_and_register(session, memory.get(), 0, huge, &reply).reason, Reason::OutOfMemory);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  EXPECT_TRUE(offer_and_register(session, memory.get(), 0, 4096, &reply).status.ok());
}

// Each alone could be filled; together they could not.
TEST_F(MemoryTest, SparseMemoryIsReservedAndNotOnlyLookedAt) {
  settings_.quota.registered_bytes = ~0ull;
  settings_.quota.node_host_bytes = 64 << 20;
  start();
  Session session = open_session();
  const std::uint64_t some = 40 << 20;
  const UniqueFd first = sealed_memfd(some, F_SEAL_SHRINK),
                 second = sealed_memfd(some, F_SEAL_SHRINK);
  v1::BufferReply kept, reply;
  ASSERT_TRUE(offer_and_register(session, first.get(), 0, some, &kept).status.ok());
  const Outcome refused = offer_and_register(session, second.get(), 0, some, &reply);
  EXPECT_EQ(refused.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.reason, Reason::OutOfMemory);
  EXPECT_NE(refused.status.error_message().find("quota.node_host_bytes"), std::string::npos)
      << refused.status.error_message();
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  release.set_buffer(kept.buffer());
  v1::Empty empty;
  ASSERT_TRUE(call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, release, &empty).status.ok());
  EXPECT_TRUE(offer_and_register(session, second.get(), 0, some, &reply).status.ok());
}

// Pages elsewhere in the file are no pages of the range.
TEST_F(MemoryTest, PagesOutsideOfTheRangeDoNotCountAsThere) {
  settings_.quota.registered_bytes = ~0ull;
  start();
  Session session = open_session();
  const std::uint64_t half = 8 << 20;
  const UniqueFd memory = sealed_memfd(2 * half, F_SEAL_SHRINK);
  ASSERT_EQ(::fallocate(memory.get(), 0, static_cast<off_t>(half), static_cast<off_t>(half)), 0);
  v1::BufferReply reply;
  ASSERT_TRUE(offer_and_register(session, memory.get(), 0, half, &reply).status.ok());
  EXPECT_EQ(limit_of("unfilled_bytes").used(), half);
  const UniqueFd full = sealed_memfd(half, F_SEAL_SHRINK);
  ASSERT_EQ(::fallocate(full.get(), 0, 0, static_cast<off_t>(half)), 0);
  ASSERT_TRUE(offer_and_register(session, full.get(), 0, half, &reply).status.ok());
  EXPECT_EQ(limit_of("unfilled_bytes").used(), half);
  EXPECT_EQ(limit_of("host_bytes").used(), 2 * half);
}

TEST_F(MemoryTest, TheStatusTellsWhatIsUsedOfEachLimitAndByWhom) {
  settings_.quota.node_mappings = 100;
  start();
  Session session = open_session();
  v1::BufferReply reply;
  ASSERT_TRUE(allocate(session, 8192, &reply).status.ok());
  const v1::LimitStatus mappings = limit_of("mappings");
  EXPECT_EQ(mappings.used(), 2u);  // the ring, the buffer
  EXPECT_EQ(mappings.of_node(), 100u);
  EXPECT_EQ(mappings.of_uid(), 0u);
  EXPECT_EQ(mappings.users(), 1u);
  EXPECT_EQ(mappings.most(), 2u);
  EXPECT_EQ(mappings.most_uid(), ::getuid());
  EXPECT_EQ(limit_of("sessions").of_uid(), settings_.quota.sessions);
  EXPECT_GT(limit_of("sessions").of_node(), 0u) << "0 is filled in from the machine";
  EXPECT_EQ(limit_of("host_bytes").used(), 8192u);
  EXPECT_TRUE(limit_of("host_bytes").in_bytes());
}

TEST_F(MemoryTest, BoundsTheDescriptorsThatOneSessionLeavesWaiting) {
  start();
  Session session = open_session();
  const UniqueFd memory = sealed_memfd(4096, F_SEAL_SHRINK);
  for (std::size_t i = 0; i < kMaxOffersOnHost; ++i) {
    const auto answer = session.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
    ASSERT_TRUE(answer && answer->code == 0);
  }
  const auto answer = session.fds->ask(fd_request(FdMessageKind::Offer), {memory.get()});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, static_cast<std::uint32_t>(ErrorCode::ResourceExhausted));
}

TEST_F(MemoryTest, ClosesAConnectionThatSendsAMalformedMessage) {
  start();
  const UniqueFd memory = sealed_memfd(4096, F_SEAL_SHRINK);
  FdMessage message = fd_request(FdMessageKind::Fetch, 1);
  const std::vector<std::byte> longer(sizeof(FdMessage) + 8);
  {
    FdClient client(path("fd.sock"));
    ASSERT_TRUE(client.send_bytes(&message, 20));
    EXPECT_FALSE(client.receive()) << "short";
  }
  {
    FdClient client(path("fd.sock"));
    ASSERT_TRUE(client.send_bytes(longer.data(), longer.size()));
    EXPECT_FALSE(client.receive()) << "long";
  }
  {
    FdClient client(path("fd.sock"));
    FdMessage wrong = message;
    wrong.magic = 7;
    EXPECT_FALSE(client.ask(wrong)) << "magic";
  }
  {
    FdClient client(path("fd.sock"));
    FdMessage wrong = message;
    wrong.kind = static_cast<FdMessageKind>(99);
    EXPECT_FALSE(client.ask(wrong)) << "kind";
  }
  {
    FdClient client(path("fd.sock"));
    EXPECT_FALSE(client.ask(message, {memory.get()})) << "a descriptor where none belongs";
  }
  {
    FdClient client(path("fd.sock"));
    const std::vector<int> many(8, memory.get());
    EXPECT_FALSE(client.ask(fd_request(FdMessageKind::Offer), many)) << "too many descriptors";
  }
  EXPECT_EQ(status().state(), "ready");
}

TEST_F(MemoryTest, AMalformedMessageEndsItsSession) {
  start();
  Session session = open_session();
  ASSERT_TRUE(session.fds->send_bytes("x", 1));
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 0; }));
}

TEST_F(MemoryTest, ABufferThatTheWorkerCannotMapLeavesNothingBehind) {
  start();
  Session session = open_session();
  worker_->refuse_buffers = true;
  v1::BufferReply reply;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(allocate(session, 4096, &reply).reason, Reason::OutOfMemory);
  }
  EXPECT_EQ(metrics_.buffers.value(), 0);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  worker_->refuse_buffers = false;
  EXPECT_TRUE(allocate(session, 4096, &reply).status.ok());
}

TEST_F(MemoryTest, RefusesImpossibleSizesAndForeignHandles) {
  settings_.quota.registered_bytes = ~0ull;
  start();
  Session session = open_session();
  v1::BufferReply reply;
  EXPECT_EQ(allocate(session, 0, &reply).status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(allocate(session, ~0ull, &reply).status.error_code(), StatusCode::OUT_OF_RANGE);
  // More than any machine has: an error, not a crash, and nothing stays taken.
  EXPECT_EQ(allocate(session, 1ull << 60, &reply).reason, Reason::OutOfMemory);
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session.ref;
  release.set_buffer(12345);
  v1::Empty empty;
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::ReleaseBuffer, release, &empty).reason,
            Reason::UnknownHandle);
  v1::CreatePlanRequest plan;
  *plan.mutable_session() = session.ref;
  plan.set_dtype(200);
  v1::CreatePlanReply planned;
  EXPECT_EQ(call(*client_, &v1::NodeControl::Stub::CreatePlan, plan, &planned).reason,
            Reason::BadValue);
}

}  // namespace
}  // namespace arcomm::test
