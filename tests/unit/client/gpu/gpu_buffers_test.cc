#include "client/src/gpu/memory/gpu_buffers.h"

#include <gtest/gtest.h>

#include "tests/unit/client/gpu/fake_gpu.h"

namespace arcomm::client {
namespace {

constexpr std::uint64_t kMegabyte = 1 << 20;
constexpr std::uintptr_t kBase = 0x7f0000000000;

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

class GpuBuffersTest : public testing::Test {
 public:
  GpuBuffersTest() { gpu.place(kBase, kMegabyte, 1); }

  Result<GpuBuffer> find(std::uintptr_t address, std::uint64_t bytes) {
    return buffers.find(gpu, at(address), bytes, Deadline::after(std::chrono::seconds(1)));
  }

  FakeGpu gpu;
  std::uint32_t next = 1;
  std::vector<BufferId> removed;
  GpuBuffers buffers{{.add = [this](Gpu&, const GpuRange&, Deadline) -> Result<BufferId> {
                        return BufferId{next++, 1};
                      },
                      .remove =
                          [this](BufferId id, Deadline) {
                            removed.push_back(id);
                            return Status();
                          }},
                     {}};
};

TEST_F(GpuBuffersTest, RegistersAnAllocationOnceForEveryPointerInside) {
  const Result<GpuBuffer> first = find(kBase, 64);
  const Result<GpuBuffer> inside = find(kBase + 4096 + 2, kMegabyte - 4096 - 2);
  ASSERT_TRUE(first.ok() && inside.ok());
  EXPECT_EQ(first->id, inside->id);
  EXPECT_EQ(inside->offset_of(at(kBase + 4098)), 4098u);
  EXPECT_EQ(next, 2u);
}

TEST_F(GpuBuffersTest, RegistersAnewWhatComesToLieAtAFreedAddress) {
  const Result<GpuBuffer> old = find(kBase, 64);
  gpu.place(kBase, kMegabyte, 2);
  const Result<GpuBuffer> now = find(kBase, 64);
  ASSERT_TRUE(old.ok() && now.ok());
  EXPECT_NE(old->id, now->id);
  EXPECT_EQ(removed, std::vector{old->id});
}

TEST_F(GpuBuffersTest, GivesBackWhatANewAllocationLiesAcross) {
  const Result<GpuBuffer> old = find(kBase, 64);
  gpu.place(kBase, 0, 0);
  gpu.place(kBase - kMegabyte, 2 * kMegabyte, 2);
  ASSERT_TRUE(old.ok() && find(kBase, 64).ok());
  EXPECT_EQ(removed, std::vector{old->id});
}

TEST_F(GpuBuffersTest, GivesBackFreedMemoryWhenOtherMemoryIsRegistered) {
  const Result<GpuBuffer> freed = find(kBase, 64);
  gpu.place(kBase, 0, 0);
  gpu.place(kBase + 8 * kMegabyte, kMegabyte, 2);
  ASSERT_TRUE(freed.ok() && find(kBase + 8 * kMegabyte, 64).ok());
  EXPECT_EQ(removed, std::vector{freed->id});
}

TEST_F(GpuBuffersTest, KeepsWhatLiesOnAnotherGpuOfTheProcess) {
  FakeGpu other;
  other.number = 1;
  constexpr std::uintptr_t kThere = kBase + 8 * kMegabyte;
  for (FakeGpu* one : {&gpu, &other}) {
    one->place(kThere, kMegabyte, 2, 1);
    one->place(kBase + 16 * kMegabyte, kMegabyte, 3);
  }
  other.place(kBase, kMegabyte, 1);
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  const Result<GpuBuffer> here = find(kBase, 64);
  const Result<GpuBuffer> there = buffers.find(other, at(kThere), 64, deadline);
  ASSERT_TRUE(here.ok() && there.ok());
  ASSERT_TRUE(find(kBase + 16 * kMegabyte, 64).ok());
  EXPECT_TRUE(removed.empty());
  EXPECT_EQ(buffers.find(other, at(kThere), 64, deadline)->id, there->id);
}

TEST_F(GpuBuffersTest, RefusesARangeThatLeavesItsAllocation) {
  gpu.place(kBase + kMegabyte, kMegabyte, 2);  // a neighbour does not help
  const Result<GpuBuffer> found = find(kBase + kMegabyte - 4, 8);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().reason, Reason::OutOfBounds);
  EXPECT_NE(found.error().message.find("ends 4 bytes behind it"), std::string::npos);
}

TEST_F(GpuBuffersTest, RefusesMemoryOfAnotherGpu) {
  gpu.place(kBase, kMegabyte, 1, 3);
  const Result<GpuBuffer> found = find(kBase, 8);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("memory of GPU 3"), std::string::npos);
}

TEST_F(GpuBuffersTest, RefusesHostMemory) {
  EXPECT_EQ(find(0x1000, 8).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(next, 1u);
}

TEST_F(GpuBuffersTest, ForgetsByAnyPointerInside) {
  const Result<GpuBuffer> known = find(kBase, 64);
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  ASSERT_TRUE(buffers.forget(at(kBase + 100), deadline).ok());
  EXPECT_EQ(removed, std::vector{known->id});
  EXPECT_EQ(buffers.forget(at(kBase), deadline).error().code, ErrorCode::NotFound);
}

TEST(LoadGpus, SaysWhatIsMissingWhereThereIsNoCuda) {
  const Result<Gpus*> gpus = load_gpus("libcuda-of-no-machine.so.1");
  ASSERT_FALSE(gpus.ok());
  EXPECT_EQ(gpus.error().reason, Reason::Unsupported);
  EXPECT_NE(gpus.error().message.find("CUDA"), std::string::npos);
  EXPECT_NE(gpus.error().message.find("attach with device host:0"), std::string::npos);
}

}  // namespace
}  // namespace arcomm::client
