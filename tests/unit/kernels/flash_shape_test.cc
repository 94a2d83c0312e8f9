#include "kernels/all_reduce/flash_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace arcomm {
namespace {

TEST(FlashShape, LanesOfAllBlocksCoverEveryElementOnceAndStartOnCacheLines) {
  for (const DType dtype : {DType::Int8, DType::Float16, DType::Float64}) {
    const std::uint64_t per_line = kCacheLineBytes / size_of(dtype);
    for (const std::uint64_t count : {0U, 1U, 63U, 64U, 1000U, 4097U, 99'991U}) {
      const ElementRange all{7 * per_line, 7 * per_line + count};
      for (std::uint32_t blocks = 1; blocks <= kMaxCudaBlocks; ++blocks) {
        // Per lane by its start: how many blocks say that they share it.
        std::vector<ElementRange> lanes;
        for (std::uint32_t block = 0; block < blocks; ++block) {
          const FlashLane lane = flash_lane(all, dtype, blocks, block);
          ASSERT_LT(lane.block, lane.blocks);
          ASSERT_EQ(lane.elements.empty() ? 0 : lane.elements.first % per_line, 0U);
          if (lane.block == 0) lanes.push_back(lane.elements);
          // Its neighbour in the lane, if there is one, is there and agrees.
          if (lane.block + 1 == lane.blocks) continue;
          bool found = false;
          for (std::uint32_t other = block + 1; other < blocks && !found; ++other) {
            const FlashLane next = flash_lane(all, dtype, blocks, other);
            found = next.elements == lane.elements && next.blocks == lane.blocks &&
                    next.block == lane.block + 1;
          }
          ASSERT_TRUE(found) << blocks << " blocks, block " << block;
        }
        std::uint64_t next = all.first;
        for (const ElementRange& lane : lanes) {
          ASSERT_EQ(lane.first, next) << blocks << " blocks";
          next = lane.last;
        }
        ASSERT_EQ(next, all.last);
      }
    }
  }
}

TEST(FlashShape, StagesFitIntoTheSharedMemoryThatABlockGetsUnasked) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    EXPECT_LE(flash_shared_bytes(ranks), 48U * 1024) << ranks;
    EXPECT_EQ(flash_threads(ranks) % 32, 0U);
  }
}

TEST(FlashShape, InPlaceNobodyReadsWhatAnotherWrites) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (const std::uint64_t bytes : {1ULL, 1ULL << 20, 1ULL << 30})
      EXPECT_FALSE(flash_reads_whole(bytes, ranks, true));
    EXPECT_TRUE(flash_reads_whole(1, ranks, false));
    EXPECT_EQ(flash_reads_whole(1ULL << 30, ranks, false), ranks == 2);
  }
}

}  // namespace
}  // namespace arcomm
