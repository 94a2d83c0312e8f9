#include "proto/gpu/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "proto/gpu/in_stream_call.h"
#include "proto/gpu/in_stream_images.h"

namespace arcomm {
namespace {

TEST(InStreamShapeTest, TellsApartWhatRanksMustAgreeOn) {
  std::set<std::uint32_t> seen;
  for (const InStreamShape shape : {InStreamShape{InStreamAlgorithm::OneShotLl16, 1},
                                    InStreamShape{InStreamAlgorithm::TwoShotLl128, 32},
                                    InStreamShape{InStreamAlgorithm::PairLl128, 32}}) {
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
      for (unsigned op = 0; op < kReduceOps; ++op) {
        // Also codecs and collectives that do not exist yet.
        for (unsigned codec = 0; codec < 8; ++codec) {
          for (unsigned collective = 0; collective < 4; ++collective) {
            const std::uint32_t what =
                shape.what(dtype, static_cast<ReduceOp>(op), static_cast<Codec>(codec),
                           static_cast<Collective>(collective));
            EXPECT_TRUE(seen.insert(what).second);
            EXPECT_LT(what, 1U << kInStreamWhatBits);
          }
        }
      }
    }
  }
}

TEST(InStreamCallTest, SaysWhatItIsAndWhichOneItIs) {
  const InStreamShape shape{InStreamAlgorithm::PairLl128, kMaxInStreamBlocks};
  const std::uint32_t what =
      shape.what(DType::Float32, ReduceOp::Avg, Codec::Q6Rotated, Collective::AllReduce);
  for (const std::uint64_t n : {0ULL, 1ULL, 4095ULL, 4096ULL, 262'142ULL, 262'143ULL}) {
    InStreamCall one{.count = std::uint32_t{kMostInStreamCount}}, other = one;
    one.say(what, identity_of_captured(n));
    EXPECT_EQ(one.identity(), identity_of_captured(n));
    EXPECT_EQ(one.op(), ReduceOp::Avg);
    EXPECT_EQ(one.codec(), Codec::Q6Rotated);
    EXPECT_NE(one.identity(), kNoIdentity);
    other.say(what, identity_of_captured(n + 1));
    const auto same = [&] {
      return is_same_but_for_identity(one.what, one.count_and_identity, other.what,
                                      other.count_and_identity);
    };
    EXPECT_TRUE(same());
    EXPECT_FALSE(one.what == other.what && one.count_and_identity == other.count_and_identity);
    --other.count;
    other.say(what, one.identity());
    EXPECT_FALSE(same());
    other.count = one.count;
    other.say(what ^ 1, one.identity());
    EXPECT_FALSE(same());
  }
}

// Two warps, as pair_ll128 and coded_pair have them, in any order of their steps: each takes in
// what the other pushed, and not what came before or after it in the slot.
TEST(InStreamExchangeTest, HasSlotsEnoughForTwoRanksThatPushAhead) {
  struct Warp {
    std::array<std::uint32_t, kInStreamSlots> slots{};  // the last packet that arrived, plus 1
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
      if (self.pushed < packets && self.pushed < self.taken + kInStreamAhead) {
        std::uint32_t& slot = peer.slots[self.pushed % kInStreamSlots];
        ASSERT_TRUE(slot == 0 || slot - 1 < peer.taken) << "still to be read";
        slot = ++self.pushed;
      } else if (self.taken < packets &&
                 self.slots[self.taken % kInStreamSlots] == self.taken + 1) {
        ++self.taken;
      }
    }
  }
}

TEST(InStreamExchangeTest, HasAreasThatDoNotMeet) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> areas{{0, kInStreamControlBytes}};
    for (std::uint32_t number = 6; number < 8; ++number) {
      for (std::uint32_t block = 0; block < kMaxInStreamBlocks; ++block) {
        for (std::uint32_t from = 0; from < ranks; ++from) {
          if (block < kMaxInStreamLl16Blocks)
            areas.emplace_back(in_stream_ll16_offset(ranks, number, block, from),
                               kInStreamLl16Bytes);
          areas.emplace_back(in_stream_ll128_offset(ranks, number, block, from),
                             in_stream_packets(ranks) * kInStreamPacketBytes);
        }
      }
    }
    std::sort(areas.begin(), areas.end());
    for (std::size_t i = 0; i + 1 < areas.size(); ++i) {
      ASSERT_EQ(areas[i].first + areas[i].second, areas[i + 1].first) << ranks << " ranks";
      ASSERT_EQ(areas[i + 1].first % 128, 0u);
    }
    EXPECT_EQ(areas.back().first + areas.back().second, in_stream_exchange_bytes(ranks));
  }
}

// Warps of coded_two_shot.cuh that deal with one shard's packet, in any order of their steps: its
// owner's, and one of each peer. Each takes in what was sent for the round it is in.
TEST(InStreamExchangeTest, HasRoomForOneRoundAfterTheOther) {
  constexpr std::uint32_t kPeers = 3, kRounds = 9;
  std::mt19937 random(20261126);
  for (int run = 0; run < 500; ++run) {
    // By peer; the round that a place shows, plus 1.
    std::array<std::uint32_t, kPeers> parts{}, results{}, sent{}, taken{};
    std::uint32_t reduced = 0;
    while (std::ranges::any_of(taken, [](std::uint32_t done) { return done < kRounds; })) {
      const auto who = static_cast<std::uint32_t>(random() % (kPeers + 1));
      if (who == kPeers) {  // the owner
        const auto is_here = [&](std::uint32_t part) { return part == reduced + 1; };
        if (reduced == kRounds || !std::ranges::all_of(parts, is_here)) continue;
        for (std::uint32_t peer = 0; peer < kPeers; ++peer)
          ASSERT_EQ(results[peer], taken[peer]) << "still to be read";
        results.fill(++reduced);
      } else if (sent[who] == taken[who] && sent[who] < kRounds) {
        ASSERT_EQ(parts[who], reduced) << "still to be read";
        parts[who] = ++sent[who];
      } else if (results[who] == taken[who] + 1) {
        ++taken[who];
      }
    }
  }
}

// The kernel wipes the areas of one block and half as one piece of either kind.
TEST(InStreamExchangeTest, PutsTheAreasOfABlockAndHalfSideBySide) {
  for (std::uint32_t from = 1; from < 8; ++from) {
    EXPECT_EQ(in_stream_ll16_offset(8, 3, 5, from),
              in_stream_ll16_offset(8, 3, 5, 0) + from * 8192ull);
    EXPECT_EQ(in_stream_ll128_offset(8, 3, 5, from),
              in_stream_ll128_offset(8, 3, 5, 0) + from * 32ull * 1024);
  }
}

TEST(InStreamKernelTest, IsNamedByWhatItDoes) {
  EXPECT_EQ(in_stream_kernel_name(InStreamAlgorithm::TwoShotLl128, DType::BFloat16, ReduceOp::Avg,
                                  Codec::None),
            "arcomm_two_shot_ll128_bfloat16_avg");
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
    EXPECT_EQ(
        in_stream_kernel_name(InStreamAlgorithm::PairLl128, DType::Float32, op, Codec::Q4Rotated),
        "arcomm_pair_ll128_float32_q4_rotated");
  }
}

TEST(InStreamKernelTest, OfACodecIsOneForEachAlgorithmThatServesIt) {
  EXPECT_EQ(all_in_stream_kernels(Codec::None).size(), 4U * 3 * kReduceOps);
  EXPECT_EQ(all_in_stream_kernels(Codec::Q6).size(), 2U * 3 * 2);
  for (const auto& [algorithm, dtype, op] : all_in_stream_kernels(Codec::Q6)) {
    EXPECT_TRUE(codec_serves(Codec::Q6, op, dtype)) << op << " " << dtype;
    EXPECT_TRUE(algorithm == coded_algorithm(2) || algorithm == coded_algorithm(3));
  }
}

TEST(InStreamImagesTest, FindTheirPlacesInTheFile) {
  const std::vector<std::byte> plain(5000), coded(4096);
  InStreamImages images;
  images[static_cast<std::size_t>(Codec::None)] = plain;
  images[static_cast<std::size_t>(Codec::Q4)] = coded;
  InStreamDirectory directory = InStreamDirectory::of(images);
  const std::uint64_t end = InStreamDirectory::kPage * 4;
  EXPECT_TRUE(directory.has(Codec::None, end));
  EXPECT_TRUE(directory.has(Codec::Q4, end));
  EXPECT_FALSE(directory.has(Codec::Q4, end - 1)) << "cut off";
  EXPECT_FALSE(directory.has(Codec::Q6, end)) << "there is none";
  auto& place = directory.images[static_cast<std::size_t>(Codec::Q4)];
  place.offset += 8;
  EXPECT_FALSE(directory.has(Codec::Q4, 2 * end)) << "where a driver cannot read it";
  place = {~std::uint64_t{4095}, 4096};
  EXPECT_FALSE(directory.has(Codec::Q4, end)) << "beyond all ends";
}

}  // namespace
}  // namespace arcomm
