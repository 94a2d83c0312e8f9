// Clients' GPU memory that a worker is told of in pieces.
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuMemoryTest : public GpuWorkerTest {
 protected:
  // Pieces whose descriptors are one end of a pipe: the other one tells when all are closed.
  BufferSpec seed(std::size_t pieces) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = UniqueFd(ends[0]);
    const UniqueFd writer(ends[1]);
    BufferSpec seed;
    for (std::size_t i = 0; i < pieces; ++i) {
      seed.chunks.push_back({.memory = duplicate(writer.get()), .fabric = {}, .bytes = kPiece});
    }
    seed.length_bytes = seed.allocation_bytes = pieces * kPiece;
    seed.device = "GPU-1";
    return seed;
  }
  Result<BufferId> add(SessionId session, BufferSpec seed) {
    auto shared = std::make_shared<BufferSpec>(std::move(seed));
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
  const Result<BufferId> added = add(client.client->id(), seed(3));
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
  const Result<BufferId> added = add(client.client->id(), seed(2));
  ASSERT_FALSE(added.ok());
  EXPECT_TRUE(eventually([&] { return pieces_are_closed(); }));
  EXPECT_EQ(node_.memories, 1);
}

}  // namespace
}  // namespace arcomm::test
