// Clients' GPU memory that a worker is told of in pieces.
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuMemoryTest : public GpuWorkerTest {
 protected:
  // Pieces whose descriptors are one end of a pipe: the other one tells when all are closed.
  BufferSpec spec(std::size_t pieces) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = UniqueFd(ends[0]);
    const UniqueFd writer(ends[1]);
    BufferSpec spec;
    for (std::size_t i = 0; i < pieces; ++i) {
      spec.chunks.push_back({.memory = duplicate(writer.get()), .fabric = {}, .bytes = kPiece});
    }
    spec.handle.length_bytes = spec.handle.allocation_bytes = pieces * kPiece;
    spec.device = "GPU-1";
    return spec;
  }
  Result<BufferId> add(SessionId session, BufferSpec spec) {
    auto shared = std::make_shared<BufferSpec>(std::move(spec));
    return await<BufferId>(
        [&](auto done) { worker_->add_buffer(session, std::move(*shared), done); });
  }
  bool pieces_are_closed() const {
    char byte = 0;
    return ::read(reader_.get(), &byte, 1) == 0;
  }

  static constexpr std::uint64_t kPiece = 1 << 20;
  UniqueFd reader_;
};

TEST_F(GpuMemoryTest, MapsPiecesAndClosesTheirDescriptors) {
  const GpuRank& client = rank(0, 4096);
  const Result<BufferId> added = add(client.client->id(), spec(3));
  ASSERT_TRUE(added.ok()) << added.error().to_string();
  EXPECT_EQ(node_.imported_chunks, 3u);
  EXPECT_TRUE(eventually([&] { return pieces_are_closed(); }));
  const Result<void> removed =
      await<void>([&](auto done) { worker_->remove_buffer(client.client->id(), *added, done); });
  EXPECT_TRUE(removed.ok());
  EXPECT_TRUE(eventually([&] { return node_.memories == 1; })) << "the rank's own buffer is left";
}

TEST_F(GpuMemoryTest, APieceThatCannotBeMappedLeavesNothingBehind) {
  const GpuRank& client = rank(0, 4096);
  node_.most_bytes = kPiece;
  const Result<BufferId> added = add(client.client->id(), spec(2));
  ASSERT_FALSE(added.ok());
  EXPECT_TRUE(eventually([&] { return pieces_are_closed(); }));
  EXPECT_EQ(node_.memories, 1);
}

// By a handle of cudaMalloc's, whose lifetime nobody promises.
TEST_F(GpuMemoryTest, MemoryByACudaIpcHandleIsRefusedWhereTheSettingForbidsIt) {
  const auto by_handle = [] {
    BufferSpec spec;
    spec.handle.kind = MemoryKind::CudaIpc;
    spec.handle.length_bytes = spec.handle.allocation_bytes = kPiece;
    spec.device = "GPU-1";
    return spec;
  };
  EXPECT_TRUE(add(rank(0, 4096).client->id(), by_handle()).ok());
  Settings settings;
  settings.gpu.cuda_ipc = false;
  start(settings);
  const SessionId client = rank(0, 4096).client->id();
  const Result<BufferId> refused = add(client, by_handle());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(refused.error().reason, Reason::Unsupported);
  EXPECT_NE(refused.error().message.find("arcMemAlloc"), std::string::npos);
  EXPECT_TRUE(add(client, spec(2)).ok()) << "by descriptors";
}

// The fakes see to it that nothing goes while a kernel is at work in it.
TEST_F(GpuMemoryTest, MemoryOfAnOperationThatIsUnderWayStaysWhatItsClientAsksForOrDies) {
  for (const bool dies : {false, true}) {
    const auto ranks = group(2);
    node_.hold_launches = true;
    std::vector<PlanId> plans;
    for (GpuRank* rank : ranks) {
      plans.push_back(plan(*rank, kLarge));
      rank->send()[0] = 1;
      rank->start(plans.back(), LaunchPath::Launched);
    }
    ASSERT_TRUE(eventually([&] { return inspect().operations_pending == 2; }));
    const SessionId client = ranks[1]->client->id();
    if (dies) {
      EXPECT_TRUE(await<void>([&](auto done) {
                    worker_->close_session(client, Reason::RemoteDied, "killed", done);
                  }).ok());
      expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 1);
      node_.hold_launches = false;
    } else {
      const Result<void> refused =
          await<void>([&](auto done) { worker_->remove_buffer(client, ranks[1]->buffer, done); });
      EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
      node_.hold_launches = false;
      for (GpuRank* rank : ranks) {
        ASSERT_TRUE(rank->wait(LaunchPath::Launched));
        EXPECT_EQ(rank->recv()[0], 2);
      }
    }
    expect_serving(kLarge);
  }
}

}  // namespace
}  // namespace arcomm::test
