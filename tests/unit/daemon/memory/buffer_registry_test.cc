// Buffers of host memory and of GPUs beside each other. A host allocation stands in for a GPU's.
#include "daemon/memory/buffer_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

const SessionId kMine{1, 1}, kOther{2, 1};

// Tells where another device finds it, and when it went.
class FarMemory final : public Memory::Backing {
 public:
  explicit FarMemory(bool& gone) : gone_(gone) {}
  ~FarMemory() override { gone_ = true; }
  MemoryRef view() const override { return {bytes_, sizeof(bytes_)}; }
  std::byte* data_on(int ordinal) const override { return ordinal == 3 ? bytes_ + 8 : bytes_; }
  Result<UniqueFd> export_fd() const override { return UniqueFd(); }

 private:
  mutable std::byte bytes_[64];
  bool& gone_;
};

TEST(BufferRegistry, HandsBackTheMemoryOfAGpuAndKnowsWhichItWas) {
  BufferRegistry buffers;
  bool gone = false;
  const BufferId id = buffers.add(kMine, Memory(std::make_unique<FarMemory>(gone)), 2);
  EXPECT_EQ(buffers.bytes(), 64u);
  const Buffer* buffer = buffers.find(kMine, id);
  ASSERT_NE(buffer, nullptr);
  EXPECT_TRUE(buffer->on_gpu());
  EXPECT_EQ(buffer->length_bytes(), 64u);
  EXPECT_EQ(buffer->base_on(0), buffer->base());
  EXPECT_EQ(buffer->base_on(3), buffer->base() + 8);
  EXPECT_EQ(buffers.find(kOther, id), nullptr);
  {
    Result<RemovedBuffer> removed = buffers.remove(kMine, id);
    ASSERT_TRUE(removed) << removed.error().message;
    EXPECT_EQ(removed->gpu, 2);
    EXPECT_FALSE(gone) << "it may be let go in a pause only, by whom it was handed to";
  }
  EXPECT_TRUE(gone);
  EXPECT_EQ(buffers.bytes(), 0u);
  EXPECT_EQ(buffers.find(kMine, id), nullptr);
}

TEST(BufferRegistry, KeepsWhatIsInUse) {
  BufferRegistry buffers;
  bool gone = false;
  const BufferId id = buffers.add(kMine, Memory(std::make_unique<FarMemory>(gone)), 0);
  buffers.hold(id);
  EXPECT_EQ(buffers.remove(kMine, id).error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(buffers.remove(kOther, id).error().code, ErrorCode::NotFound);
  EXPECT_EQ(buffers.size(), 1u);
  buffers.drop(id);
  EXPECT_TRUE(buffers.remove(kMine, id));
}

TEST(BufferRegistry, NothingIsLeftOfHostMemory) {
  BufferRegistry buffers;
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const Result<BufferId> id = buffers.add(kMine, std::move(fd), 0, 4096);
  ASSERT_TRUE(id) << id.error().message;
  const Buffer* buffer = buffers.find(kMine, *id);
  EXPECT_FALSE(buffer->on_gpu());
  EXPECT_EQ(buffer->base_on(5), buffer->base());
  const Result<RemovedBuffer> removed = buffers.remove(kMine, *id);
  ASSERT_TRUE(removed);
  EXPECT_FALSE(removed->memory);
  EXPECT_EQ(removed->gpu, kNoGpu);
}

TEST(HostDevice, ImportsNothing) {
  auto device = HostDevice::create({});
  ASSERT_TRUE(device);
  Memory memory;
  EXPECT_EQ((*device)->import({}, -1, memory).error().code, ErrorCode::Unimplemented);
}

}  // namespace
}  // namespace arcomm
