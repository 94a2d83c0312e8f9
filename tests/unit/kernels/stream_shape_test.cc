#include "kernels/all_reduce/stream_shape.h"

#include <gtest/gtest.h>

#include <set>

namespace arcomm {
namespace {

TEST(StreamShape, TilesFitIntoTheirSlots) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (std::uint32_t blocks = 1; blocks <= kMaxCudaBlocks; ++blocks) {
      for (const std::uint64_t bytes : {1ULL, 5000ULL, 1ULL << 20, 77'777'777ULL, 1ULL << 34}) {
        const std::uint64_t tile = stream_tile_bytes(bytes, ranks, blocks);
        ASSERT_GE(tile, kMinStreamTile);
        ASSERT_LE(tile, kStreamTileBytes);
      }
    }
  }
}

TEST(StreamShape, LaneWithLittleToDoHasOneTile) {
  constexpr std::uint32_t kBlocks = 112;
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
    for (std::uint64_t bytes = 20'000ULL * ranks * kBlocks; bytes % 1001 != 0; ++bytes) {
      const std::uint64_t tile = stream_tile_bytes(bytes, ranks, kBlocks);
      EXPECT_EQ(tile_count(shard_range(bytes, DType::Int8, ranks, 0).size(), tile), kBlocks);
    }
  }
  EXPECT_EQ(stream_tile_bytes(16 << 20, 2, kBlocks), kUsualStreamTile);
  EXPECT_EQ(stream_tile_bytes(64 << 20, 2, kBlocks), kStreamTileBytes);
}

TEST(StreamShape, TilesOfAllBlocksAndTurnsCoverEveryShardOnceAndBeginOnCacheLines) {
  for (const DType dtype : {DType::Int8, DType::Float16, DType::Float64}) {
    const std::uint64_t per_line = kCacheLineBytes / size_of(dtype);
    for (const std::uint64_t count : {0ULL, 1ULL, 4097ULL, 999'983ULL, 9'999'991ULL}) {
      for (const std::uint32_t ranks : {2U, 3U, 8U}) {
        for (const std::uint32_t blocks : {1U, 3U, 64U, 112U}) {
          const StreamTiles tiles =
              stream_tiles(shard_range(count, dtype, ranks, 0).size(), dtype,
                           stream_tile_bytes(count * size_of(dtype), ranks, blocks), blocks);
          ASSERT_LE(tiles.last_elements, tiles.elements);
          for (std::uint32_t owner = 0; owner < ranks; ++owner) {
            const ElementRange shard = shard_range(count, dtype, ranks, owner);
            std::uint64_t next = shard.first;
            for (std::uint32_t turn = 0; turn < tiles.turns; ++turn) {
              for (std::uint32_t block = 0; block < blocks; ++block) {
                const ElementRange tile = stream_tile(shard, tiles, blocks, block, turn);
                if (tile.empty()) continue;
                ASSERT_EQ(tile.first, next);
                ASSERT_EQ(tile.first % per_line, 0U);
                next = tile.last;
              }
            }
            ASSERT_EQ(next, shard.last);
          }
        }
      }
    }
  }
}

TEST(StreamShape, EveryBlockSenderAndTurnUnderWayHasASlotOfItsOwn) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (std::uint32_t reader = 0; reader < ranks; ++reader) {
      std::set<std::uint64_t> offsets;
      for (std::uint32_t from = 0; from < ranks; ++from) {
        if (from == reader) continue;
        for (std::uint32_t block = 0; block < kMaxCudaBlocks; ++block) {
          for (std::uint32_t turn = 5; turn < 5 + kStreamSlots; ++turn) {
            const std::uint64_t offset = stream_slot_offset(ranks, reader, from, block, turn);
            ASSERT_EQ(offset % kStreamTileBytes, 0U);
            ASSERT_LE(kStreamOffset + offset + kStreamTileBytes, stream_end(ranks));
            ASSERT_TRUE(offsets.insert(offset).second);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
