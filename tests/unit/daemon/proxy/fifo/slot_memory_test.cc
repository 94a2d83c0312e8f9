// Whatever a kernel's entry says, the range that comes out lies in memory that the FIFO was made
// with.
#include "daemon/proxy/fifo/slot_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace arcomm::proxy {
namespace {

constexpr std::uint32_t kSlotBytes = 64;

class SlotMemoryTest : public testing::Test {
 protected:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kFifoSteps * kSlotBytes);
  std::vector<std::byte> region_ = std::vector<std::byte>(1000);
  SharedSlots pool_{bytes_, kSlotBytes, 2};
  SlotMemory normal_{.mode = SlotMode::Normal, .most_bytes = kSlotBytes, .slots = bytes_};
  SlotMemory offset_{.mode = SlotMode::Offset, .most_bytes = kSlotBytes, .pool = &pool_};
  SlotMemory pointer_{.mode = SlotMode::Pointer, .most_bytes = kSlotBytes, .regions = {region_}};

  std::uint64_t address(std::uint64_t at) const {
    return reinterpret_cast<std::uintptr_t>(region_.data()) + at;
  }
  static FifoEntry entry(std::uint64_t step, std::uint32_t bytes, SlotMode mode,
                         std::uint64_t offset, std::uint64_t address) {
    return {.size_word = to_word(SizeWord{.step = step, .bytes = bytes}),
            .sequence = step + 1,
            .offset = offset,
            .address = address,
            .mode = mode};
  }
};

TEST_F(SlotMemoryTest, AnEntryThatAgreesMeansItsBytes) {
  const auto third = normal_.checked(entry(11, 10, SlotMode::Normal, 3 * kSlotBytes, 0), 11, 0);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->data(), bytes_.data() + 3 * kSlotBytes);
  EXPECT_EQ(third->size(), 10U);
  const auto pooled = offset_.checked(entry(2, kSlotBytes, SlotMode::Offset, 128, 0), 2, 128);
  ASSERT_TRUE(pooled);
  EXPECT_EQ(pooled->data(), bytes_.data() + 128);
  const auto pointed = pointer_.checked(entry(0, 10, SlotMode::Pointer, 0, address(990)), 0, 0);
  ASSERT_TRUE(pointed);
  EXPECT_EQ(pointed->data(), region_.data() + 990);
}

TEST_F(SlotMemoryTest, OneThatDoesNotIsRefusedByName) {
  const auto refused = [](const Result<std::span<std::byte>>& result, const char* what) {
    ASSERT_FALSE(result) << what;
    EXPECT_EQ(result.error().code, ErrorCode::DataLoss);
    EXPECT_EQ(result.error().reason, Reason::Corrupt);
    EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
  };
  refused(normal_.checked(entry(11, 0, SlotMode::Normal, 192, 0), 11, 0), "size");
  refused(normal_.checked(entry(11, kSlotBytes + 1, SlotMode::Normal, 192, 0), 11, 0), "size");
  refused(normal_.checked(entry(11, 1, SlotMode::Normal, 191, 0), 11, 0), "offset");
  refused(normal_.checked(entry(11, 1, SlotMode::Pointer, 192, 0), 11, 0), "mode");
  refused(normal_.checked(entry(10, 1, SlotMode::Normal, 192, 0), 11, 0), "sequence");
  // Another's slot of the pool is not its own.
  refused(offset_.checked(entry(2, 1, SlotMode::Offset, 64, 0), 2, 128), "offset");
  refused(pointer_.checked(entry(0, 10, SlotMode::Pointer, 0, address(991)), 0, 0), "address");
  refused(pointer_.checked(entry(0, 10, SlotMode::Pointer, 0, address(0) - 1), 0, 0), "address");
  refused(pointer_.checked(entry(0, 10, SlotMode::Pointer, 0, ~std::uint64_t{0}), 0, 0), "address");
}

TEST_F(SlotMemoryTest, NoBitsOfAnEntryLeadOutOfBounds) {
  std::mt19937_64 random(1);
  const auto lies_in = [](std::span<const std::byte> inner, std::span<const std::byte> outer) {
    return inner.data() >= outer.data() &&
           inner.data() + inner.size() <= outer.data() + outer.size();
  };
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t step = random() % 100;
    FifoEntry any = entry(step, static_cast<std::uint32_t>(random() % 80), SlotMode::Pointer, 0,
                          address(random() % 1100 - 50));
    if (i % 3 == 0) any.address = random();
    if (i % 5 == 0) any.size_word = random();
    if (const auto found = pointer_.checked(any, step, 0)) {
      ASSERT_TRUE(lies_in(*found, region_));
    }
    any.mode = SlotMode::Normal;
    any.offset = i % 2 == 0 ? random() : random() % 9 * kSlotBytes;
    if (const auto found = normal_.checked(any, step, 0)) {
      ASSERT_TRUE(lies_in(*found, bytes_));
    }
  }
}

TEST_F(SlotMemoryTest, APoolGivesEachItsShareAndNobodyMore) {
  EXPECT_EQ(pool_.share(), kFifoSteps / 2);
  EXPECT_TRUE(pool_.join());
  EXPECT_TRUE(pool_.join());
  EXPECT_FALSE(pool_.join());
  pool_.leave();
  EXPECT_TRUE(pool_.join());
}

}  // namespace
}  // namespace arcomm::proxy
