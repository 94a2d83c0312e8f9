#include "kernels/all_reduce/push_shape.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/partition.h"

namespace arcomm {
namespace {

TEST(PushShape, TilesAreWholeCacheLinesAndFitIntoSlotsAndSharedMemory) {
  for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks; ++ranks) {
    for (std::uint32_t blocks = 1; blocks <= kMaxPushBlocks; ++blocks) {
      for (const std::uint64_t bytes : {1ULL, 5000ULL, 1ULL << 20, 77'777'777ULL, 1ULL << 34}) {
        const std::uint32_t tile = push_tile_bytes(bytes, ranks, blocks);
        ASSERT_EQ(tile % kCacheLineBytes, 0U);
        ASSERT_GE(tile, kMinPushTile);
        ASSERT_EQ(kPushLaneBytes % tile, 0U);
        ASSERT_LE(push_shared_bytes(tile, ranks), kMaxPushSharedBytes);
        // Fewer slots than stages would leave stages empty.
        ASSERT_GE(push_slots(tile), kPushPeerStages);
      }
    }
  }
  EXPECT_LE(kMaxPushSharedBytes, 227U * 1024 - 1024) << "of an H100 or H200, less what is static";
}

TEST(PushShape, EveryBlockAndSenderHasSlotsOfItsOwnInEitherHalf) {
  for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks; ++ranks) {
    for (std::uint32_t reader = 0; reader < ranks; ++reader) {
      std::set<std::uint64_t> offsets;
      for (std::uint32_t epoch = 6; epoch < 8; ++epoch) {
        for (std::uint32_t from = 0; from < ranks; ++from) {
          if (from == reader) continue;
          for (std::uint32_t block = 0; block < kMaxPushBlocks; ++block) {
            const std::uint64_t offset = push_lane_offset(epoch, ranks, reader, from, block);
            ASSERT_EQ(offset % kPushLaneBytes, 0U);
            ASSERT_LE(push_offset(ranks) + offset + kPushLaneBytes, push_end(ranks));
            ASSERT_TRUE(offsets.insert(offset).second);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
