#include "kernels/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace arcomm {
namespace {

constexpr DType kTypes[] = {DType::Int8, DType::Float16, DType::Float32, DType::Float64};
constexpr std::uint64_t kCounts[] = {0,  1,   2,    15,   16,   17,   63,    64,
                                     65, 127, 1000, 1023, 4096, 4097, 99'991};

TEST(Partition, TilesCoverEveryElementExactlyOnce) {
  for (const DType dtype : kTypes) {
    for (const std::uint64_t count : kCounts) {
      for (const std::uint64_t tile_bytes : {1U, 64U, 100U, 4096U, 65536U}) {
        const std::uint64_t each = tile_elements(dtype, tile_bytes);
        std::uint64_t next = 0;
        for (std::uint64_t tile = 0; tile < tile_count(count, each); ++tile) {
          const ElementRange range = tile_range(count, each, tile);
          ASSERT_EQ(range.first, next);
          ASSERT_FALSE(range.empty());
          next = range.last;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Partition, TilesStartOnCacheLines) {
  for (const DType dtype : kTypes) {
    for (const std::uint64_t tile_bytes : {1U, 65U, 4000U, 65536U}) {
      EXPECT_EQ(tile_elements(dtype, tile_bytes) * size_of(dtype) % kCacheLineBytes, 0U);
    }
  }
}

TEST(Partition, ShardsCoverEveryElementExactlyOnce) {
  for (const DType dtype : kTypes) {
    for (const std::uint64_t count : kCounts) {
      for (std::uint64_t shards = 1; shards <= 64; ++shards) {
        std::uint64_t next = 0;
        for (std::uint64_t index = 0; index < shards; ++index) {
          const ElementRange range = shard_range(count, dtype, shards, index);
          ASSERT_EQ(range.first, next) << count << " in " << shards << ", shard " << index;
          ASSERT_LE(range.first, range.last);
          next = range.last;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Partition, ShardsDifferByAtMostOneCacheLine) {
  for (const std::uint64_t count : {1000U, 4096U, 99'991U}) {
    std::uint64_t smallest = ~std::uint64_t{0}, largest = 0;
    for (std::uint64_t index = 0; index + 1 < 7; ++index) {  // the last may end inside a line
      const ElementRange range = shard_range(count, DType::Float32, 7, index);
      EXPECT_EQ(range.first * 4 % kCacheLineBytes, 0U);
      smallest = std::min(smallest, range.size());
      largest = std::max(largest, range.size());
    }
    EXPECT_LE(largest - smallest, kCacheLineBytes / 4);
  }
}

TEST(Partition, HoldsAtTheLargestCounts) {
  const std::uint64_t count = (std::uint64_t{1} << 60) + 3;
  const std::uint64_t each = tile_elements(DType::Int8, 1 << 20);
  const std::uint64_t tiles = tile_count(count, each);
  EXPECT_EQ(tile_range(count, each, tiles - 1).last, count);
  EXPECT_EQ(shard_range(count, DType::Int8, 64, 63).last, count);
}

static_assert(tile_range(100, 64, 1) == ElementRange{64, 100}, "usable at compile time");

// In-stream kernels cut with 32-bit numbers, and by the size of an element.
TEST(ShardCut, IsTheSameWithShortAndLongNumbers) {
  for (const DType dtype : {DType::Float16, DType::Float32}) {
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
      for (const std::uint32_t count :
           {0U, 1U, 31U, 32U, 33U, 1000U, 65'537U, 8U << 20, 16U << 20}) {
        const ShardCut<std::uint32_t> cut(count, size_of(dtype), ranks);
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(cut.of(rank), shard_range(count, dtype, ranks, rank)) << count << ' ' << rank;
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
