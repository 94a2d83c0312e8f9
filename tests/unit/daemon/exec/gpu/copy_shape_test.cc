#include "daemon/exec/gpu/copy_shape.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace arcomm {
namespace {

constexpr std::uint64_t kMegabyte = 1 << 20;

TEST(CopyShape, EveryElementIsInOneChunkOfOneOwner) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (const DType dtype : {DType::Int8, DType::Float16, DType::Float64}) {
      for (const std::uint64_t count : {1, 7, 64, 511, 513, 4096, 70'001}) {
        for (const std::uint64_t most : {1, 64, 1000, 65'536}) {
          const CopyShape shape = copy_shape(count, dtype, ranks, false, most);
          std::vector<int> seen(count);
          for (std::uint64_t chunk = 0; chunk < shape.all_chunks(); ++chunk) {
            for (std::uint32_t owner = 0; owner < ranks; ++owner) {
              const ElementRange range = shape.chunk_of(owner, chunk);
              for (std::uint64_t i = range.first; i < range.last; ++i) ++seen[i];
            }
          }
          ASSERT_EQ(seen, std::vector<int>(count, 1)) << ranks << " ranks, " << count;
        }
      }
    }
  }
}

// A part waits in its owner's output where the sender's shard is to be.
TEST(CopyShape, ChunksOfOneNumberAreAsLongForAllOwners) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (const std::uint64_t count : {std::uint64_t{100'003}, 64 * kMegabyte, 64 * kMegabyte + 1}) {
      const CopyShape shape = copy_shape(count, DType::Float32, ranks, false, 0);
      for (std::uint64_t chunk = 0; chunk < shape.chunks; ++chunk) {
        for (std::uint32_t owner = 1; owner < ranks; ++owner)
          ASSERT_EQ(shape.chunk_of(owner, chunk).size(), shape.chunk_of(0, chunk).size());
      }
    }
  }
}

TEST(CopyShape, AShardGoesInTwoChunksWhateverItsSizeButForSlots) {
  for (const std::uint64_t bytes : {16 * kMegabyte, 256 * kMegabyte, 1024 * kMegabyte}) {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
      EXPECT_EQ(copy_shape(bytes / 2, DType::Float16, ranks, false, 0).chunks, 2U) << bytes;
      const CopyShape slots = copy_shape(bytes / 2, DType::Float16, ranks, true, 0);
      EXPECT_GE(slots.chunks, 2U);
      EXPECT_LE(slots.chunk_elements * 2, kCopySlotBytes);
    }
  }
}

TEST(CopyShape, WhatIsLeftFitsIntoASlot) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    const CopyShape shape = copy_shape(kCacheLineBytes * ranks - 1, DType::Int8, ranks, false, 0);
    EXPECT_EQ(shape.chunks, 0U);
    EXPECT_EQ(shape.all_chunks(), 1U);
    EXPECT_EQ(shape.chunk_of(0, 0).size(), 0U);
    EXPECT_EQ(shape.chunk_of(ranks - 1, 0), (ElementRange{0, shape.count}));
  }
}

TEST(CopyShape, TheLargestOperationHasNoMoreChunksThanAStreamTakes) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    const CopyShape shape = copy_shape(max_copy_engine_bytes(ranks), DType::Int8, ranks, true, 0);
    EXPECT_LE(shape.all_chunks() * copy_entries(ranks), 600U) << ranks;
    EXPECT_GE(max_copy_engine_bytes(ranks), 4096 * kMegabyte) << ranks;
  }
}

TEST(CopyShape, EverySenderHasSlotsOfItsOwn) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (std::uint32_t at = 0; at < ranks; ++at) {
      std::set<std::uint64_t> offsets;
      for (std::uint64_t chunk = 6; chunk < 6 + kCopySlots; ++chunk) {
        for (std::uint32_t from = 0; from < ranks; ++from) {
          if (from == at) continue;
          const std::uint64_t offset = copy_slot_offset(ranks, at, from, chunk);
          ASSERT_TRUE(offsets.insert(offset).second);
          ASSERT_LE(kCopyOffset + offset + kCopySlotBytes, copy_end(ranks));
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
