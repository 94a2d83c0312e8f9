#include "proto/direct_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/partition.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kMost = 16 * kMiB;
constexpr DirectRoom kRoom{.whole_lines = true};

std::uint64_t up(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

std::vector<std::uint64_t> sizes() {
  std::vector<std::uint64_t> all;
  for (std::uint64_t bytes = 2; bytes <= kMost; bytes *= 2) {
    for (const std::uint64_t near : {bytes - 2, bytes, bytes + 2}) {
      if (near > 0 && near <= kMost) all.push_back(near);
    }
  }
  for (std::uint64_t bytes = 2; bytes < kMost; bytes += 16386) all.push_back(bytes);
  return all;
}

TEST(DirectShapeTest, GivesNoBlockMoreThanItsAreasHold) {
  for (std::uint32_t ranks = 2; ranks <= kMaxDirectRanks; ++ranks) {
    for (const std::uint64_t bytes : sizes()) {
      for (const std::uint32_t most : {1u, 24u, 72u, 96u, 500u}) {
        const DirectShape shape =
            direct_shape(bytes, ranks, DType::Float16, {.whole_lines = true, .blocks = most});
        if (shape.blocks == 0) {
          ASSERT_TRUE(most < 24 || bytes > kMiB) << bytes << " bytes, " << ranks << " ranks";
          continue;
        }
        ASSERT_LE(shape.blocks, std::min(most, kMaxDirectBlocks));
        switch (shape.algorithm) {
          case DirectAlgorithm::OneShotLl16:
            ASSERT_LE(shape.blocks, kMaxDirectLl16Blocks);
            ASSERT_LE(up(up(bytes, 8), shape.blocks), kDirectThreads);
            break;
          case DirectAlgorithm::OneShotLl128:
            ASSERT_GT(ranks, 2u);
            ASSERT_LE(up(up(bytes, kDirectPacketData), shape.blocks), kDirectPartPackets);
            ASSERT_LE(kDirectPartPackets, direct_packets(ranks));
            break;
          case DirectAlgorithm::PairLl128:
            ASSERT_EQ(ranks, 2u);
            ASSERT_EQ(direct_packets(ranks), kDirectSlots * kDirectPartPackets);
            ASSERT_LE(up(up(bytes, kDirectPacketData), shape.blocks),
                      kDirectLaps * kDirectSlots * kDirectPartPackets);
            break;
          case DirectAlgorithm::TwoShotLl128: {
            const ElementRange longest = shard_range(bytes / 2, DType::Float16, ranks, 0);
            ASSERT_LE(up(up(longest.size() * 2, kDirectPacketData), shape.blocks),
                      kDirectPartPackets);
            ASSERT_LE(2 * kDirectPartPackets, direct_packets(ranks));
            break;
          }
        }
      }
    }
  }
}

TEST(DirectShareTest, LeavesRoomForTheBlocksOfAllAndForWhatStays) {
  for (const std::uint32_t processors : {60u, 78u, 108u, 132u, 148u}) {
    std::uint32_t taken = 0;
    for (int i = 0; i < 20; ++i) taken += direct_share(processors, taken);
    EXPECT_LE(taken + kSparedProcessors, processors);
    EXPECT_GE(direct_share(processors, 0), kSmallShare);
    EXPECT_GE(direct_share(processors, direct_share(processors, 0)), kSmallShare);
    EXPECT_EQ(direct_share(processors, kSmallShare), direct_share(processors, 0));
  }
  EXPECT_EQ(direct_share(0, 0), 0u);
  EXPECT_EQ(direct_share(20, 0), 0u);
}

TEST(DirectShapeTest, LeavesTheRestToOthers) {
  EXPECT_EQ(direct_shape(0, 2, DType::Float16, kRoom).blocks, 0u);
  EXPECT_EQ(direct_shape(1024, 1, DType::Float16, kRoom).blocks, 0u);
  EXPECT_EQ(direct_shape(1024, 9, DType::Float16, kRoom).blocks, 0u);
  EXPECT_EQ(direct_shape(1024, 2, DType::Int32, kRoom).blocks, 0u);
  EXPECT_EQ(direct_shape(kMost + 2, 2, DType::Float16, kRoom).blocks, 0u);
  const DirectRoom bounded{.whole_lines = true, .most_bytes = 4096};
  EXPECT_NE(direct_shape(4096, 2, DType::Float16, bounded).blocks, 0u);
  EXPECT_EQ(direct_shape(4098, 2, DType::Float16, bounded).blocks, 0u);
  const DirectRoom none{.whole_lines = true, .blocks = 0};
  EXPECT_EQ(direct_shape(1 << 20, 2, DType::Float16, none).blocks, 0u);
}

TEST(DirectShapeTest, UsesLinesOf128BytesOnlyWhereTheyArriveWhole) {
  for (std::uint32_t ranks = 2; ranks <= kMaxDirectRanks; ++ranks) {
    for (const std::uint64_t bytes : sizes()) {
      const DirectShape shape = direct_shape(bytes, ranks, DType::Float32, {});
      if (shape.blocks != 0) {
        ASSERT_EQ(shape.algorithm, DirectAlgorithm::OneShotLl16);
        ASSERT_LE(shape.blocks, kMaxDirectLl16Blocks);
        ASSERT_LE(up(up(bytes, 8), shape.blocks), kDirectThreads);
      }
    }
  }
  EXPECT_NE(direct_shape(64ull * 1024, 2, DType::Float32, {}).blocks, 0u);
}

TEST(DirectShapeTest, TellsApartWhatRanksMustAgreeOn) {
  std::set<std::uint32_t> seen;
  for (const DirectShape shape :
       {DirectShape{DirectAlgorithm::OneShotLl16, 1}, DirectShape{DirectAlgorithm::OneShotLl16, 32},
        DirectShape{DirectAlgorithm::TwoShotLl128, 32},
        DirectShape{DirectAlgorithm::PairLl128, 32}}) {
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
      for (unsigned op = 0; op < kReduceOps; ++op)
        EXPECT_TRUE(seen.insert(shape.what(dtype, static_cast<ReduceOp>(op))).second);
    }
  }
}

// Two warps, as pair_ll128 has them, in any order of their steps: each takes in what the other
// pushed, and not what came before or after it in the slot.
TEST(DirectExchangeTest, HasSlotsEnoughForTwoRanksThatPushAhead) {
  struct Warp {
    std::array<std::uint32_t, kDirectSlots> slots{};  // the last packet that arrived, plus 1
    std::uint32_t pushed = 0, taken = 0;
  };
  std::mt19937 random(20261123);
  for (int run = 0; run < 500; ++run) {
    const auto packets = static_cast<std::uint32_t>(1 + random() % 40);
    const auto often = 2 + random() % 20;  // of so many steps one is the second rank's
    Warp ranks[2];
    while (ranks[0].taken < packets || ranks[1].taken < packets) {
      const std::uint32_t moves = random() % often == 0 ? 1 : 0;
      Warp& self = ranks[moves];
      Warp& peer = ranks[1 - moves];
      if (self.pushed < packets && self.pushed < self.taken + kDirectAhead) {
        std::uint32_t& slot = peer.slots[self.pushed % kDirectSlots];
        ASSERT_TRUE(slot == 0 || slot - 1 < peer.taken) << "still to be read";
        slot = ++self.pushed;
      } else if (self.taken < packets && self.slots[self.taken % kDirectSlots] == self.taken + 1) {
        ++self.taken;
      }
    }
  }
}

TEST(DirectExchangeTest, HasAreasThatDoNotMeet) {
  for (std::uint32_t ranks = 2; ranks <= kMaxDirectRanks; ++ranks) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> areas{{0, kDirectControlBytes}};
    for (std::uint32_t number = 6; number < 8; ++number) {
      for (std::uint32_t block = 0; block < kMaxDirectBlocks; ++block) {
        for (std::uint32_t from = 0; from < ranks; ++from) {
          if (block < kMaxDirectLl16Blocks)
            areas.emplace_back(direct_ll16_offset(ranks, number, block, from), kDirectLl16Bytes);
          areas.emplace_back(direct_ll128_offset(ranks, number, block, from),
                             direct_packets(ranks) * kDirectPacketBytes);
        }
      }
    }
    std::sort(areas.begin(), areas.end());
    for (std::size_t i = 0; i + 1 < areas.size(); ++i) {
      ASSERT_EQ(areas[i].first + areas[i].second, areas[i + 1].first) << ranks << " ranks";
      ASSERT_EQ(areas[i + 1].first % 128, 0u);
    }
    EXPECT_EQ(areas.back().first + areas.back().second, direct_exchange_bytes(ranks));
  }
}

// The kernel wipes the areas of one block and half as one piece of either kind.
TEST(DirectExchangeTest, PutsTheAreasOfABlockAndHalfSideBySide) {
  for (std::uint32_t from = 1; from < 8; ++from) {
    EXPECT_EQ(direct_ll16_offset(8, 3, 5, from), direct_ll16_offset(8, 3, 5, 0) + from * 8192ull);
    EXPECT_EQ(direct_ll128_offset(8, 3, 5, from),
              direct_ll128_offset(8, 3, 5, 0) + from * 32ull * 1024);
  }
}

TEST(DirectKernelTest, IsNamedByWhatItDoes) {
  EXPECT_EQ(direct_kernel_name(DirectAlgorithm::TwoShotLl128, DType::BFloat16, ReduceOp::Avg),
            "arcomm_two_shot_ll128_bfloat16_avg");
}

}  // namespace
}  // namespace arcomm
