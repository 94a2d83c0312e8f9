// Memory of GPUs that is registered in pieces.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

#include "tests/unit/daemon/control/calls/gpu_fixture.h"

namespace arcomm::test {
namespace {

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
  const auto specs = worker_->buffer_specs();
  ASSERT_EQ(specs.size(), 1u);
  EXPECT_EQ(specs[0].device, kSecond);
  EXPECT_EQ(specs[0].handle.kind, MemoryKind::PosixFd);
  ASSERT_EQ(specs[0].chunks.size(), 4u);
  EXPECT_EQ(specs[0].chunks[1].bytes, 3 * kPiece);
  EXPECT_EQ(specs[0].chunks[3].fabric.back(), std::byte{'f'});
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
