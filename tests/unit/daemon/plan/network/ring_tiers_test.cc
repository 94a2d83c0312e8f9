#include "daemon/plan/network/ring_tiers.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/plan/network/network_payload.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kKi = 1 << 10, kMi = 1 << 20;

RingShape shape(RingArch arch, std::uint64_t bytes, std::uint32_t nodes,
                const Settings::Ring& limits = {}) {
  return ring_shape(bytes, nodes, {.arch = arch}, limits);
}

struct Spot {
  RingArch arch;
  std::uint64_t bytes;
  std::uint32_t nodes;
  std::uint64_t chunk_bytes, slots;
  RingBound bound;
};

TEST(RingTiers, ChunksAndSlotsAreThoseOfTheReference) {
  using enum RingArch;
  for (const Spot& spot : {
           Spot{Hopper, kKi, 8, 128, 8, RingBound::Tier},
           Spot{Newer, kKi, 8, 128, 8, RingBound::Tier},
           Spot{Hopper, 64 * kKi, 8, 8 * kKi, 8, RingBound::Tier},
           Spot{Newer, 64 * kKi, 8, 8 * kKi, 8, RingBound::Tier},
           Spot{Hopper, kMi, 8, 64 * kKi, 16, RingBound::Tier},
           Spot{Newer, kMi, 8, 64 * kKi, 16, RingBound::Tier},
           Spot{Hopper, 16 * kMi, 8, 512 * kKi, 32, RingBound::Tier},
           Spot{Newer, 16 * kMi, 8, kMi, 16, RingBound::Tier},
           Spot{Hopper, 256 * kMi, 8, 4 * kMi, 8, RingBound::Bdp},
           Spot{Newer, 256 * kMi, 8, 16 * kMi, 2, RingBound::Staging},
           Spot{Newer, 256 * kMi, 2, 16 * kMi, 2, RingBound::Staging},
       }) {
    const RingShape got = shape(spot.arch, spot.bytes, spot.nodes);
    EXPECT_EQ(got.chunk_bytes, spot.chunk_bytes) << spot.bytes;
    EXPECT_EQ(got.slots, spot.slots) << spot.bytes;
    EXPECT_EQ(got.bound, spot.bound) << spot.bytes << ": " << text_of(got.bound);
  }
}

TEST(RingTiers, DepthFollowsTheShareOfANode) {
  const auto depth = [](RingArch arch, std::uint64_t share) {
    return shape(arch, share * 8, 8).depth;
  };
  for (const RingArch arch : {RingArch::Hopper, RingArch::Newer}) {
    EXPECT_EQ(depth(arch, 16 * kKi), 1U);
    EXPECT_EQ(depth(arch, 32 * kKi), 2U);
    EXPECT_EQ(depth(arch, 512 * kKi), 2U);
  }
  EXPECT_EQ(depth(RingArch::Hopper, kMi), 4U);
  EXPECT_EQ(depth(RingArch::Hopper, 2 * kMi), 4U);
  EXPECT_EQ(depth(RingArch::Hopper, 4 * kMi), 2U);
  EXPECT_EQ(depth(RingArch::Hopper, 8 * kMi), 1U);
  EXPECT_EQ(depth(RingArch::Newer, kMi), 2U);
  EXPECT_EQ(depth(RingArch::Newer, 16 * kMi), 2U);
  EXPECT_EQ(depth(RingArch::Newer, 32 * kMi), 1U);
}

TEST(RingTiers, BlocksAndThreadsFollowTheChunk) {
  const auto of = [](RingArch arch, std::uint64_t chunk, std::uint64_t max_blocks = 0,
                     std::uint64_t threads = 0) {
    const RingShape got = shape(
        arch, 64 * kMi, 8, {.chunk_bytes = chunk, .max_blocks = max_blocks, .threads = threads});
    return std::pair(got.blocks, got.threads);
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(of(RingArch::Hopper, 8 * kKi), Pair(1, 384));
  EXPECT_EQ(of(RingArch::Hopper, 16 * kKi), Pair(1, 512));
  EXPECT_EQ(of(RingArch::Hopper, 128 * kKi), Pair(2, 512));
  EXPECT_EQ(of(RingArch::Hopper, 512 * kKi), Pair(4, 512));
  EXPECT_EQ(of(RingArch::Newer, 4 * kKi), Pair(1, 0));
  EXPECT_EQ(of(RingArch::Newer, 8 * kKi), Pair(2, 0));
  EXPECT_EQ(of(RingArch::Newer, 32 * kKi), Pair(4, 0));
  EXPECT_EQ(of(RingArch::Newer, 64 * kKi), Pair(8, 0));
  EXPECT_EQ(of(RingArch::Newer, 64 * kKi, 3, 640), Pair(3, 640));
}

TEST(RingTiers, TheGatherGoesBothWaysUpToASize) {
  const auto both = [](RingArch arch, std::uint64_t bytes, std::int64_t limit,
                       std::uint32_t nodes = 8) {
    return shape(arch, bytes, nodes, {.bidirectional_max_bytes = limit}).bidirectional;
  };
  EXPECT_TRUE(both(RingArch::Hopper, 4 * kMi, -2));
  EXPECT_FALSE(both(RingArch::Hopper, 4 * kMi + 1, -2));
  EXPECT_TRUE(both(RingArch::Newer, 128 * kMi, -2));
  EXPECT_FALSE(both(RingArch::Newer, 128 * kMi + 1, -2));
  EXPECT_TRUE(both(RingArch::Hopper, 1024 * kMi, -1));
  EXPECT_FALSE(both(RingArch::Hopper, 64, 0));
  EXPECT_TRUE(both(RingArch::Hopper, 100, 100));
  EXPECT_FALSE(both(RingArch::Hopper, 101, 100));
  EXPECT_FALSE(both(RingArch::Hopper, 64, -1, 2));  // there both ways are one
}

TEST(RingTiers, NewerGpusAmongManyNodesTakeFewLargeChunks) {
  const RingShape many = shape(RingArch::Newer, 32 * kMi, 64);
  EXPECT_EQ(many.chunk_bytes, kMi);
  EXPECT_EQ(many.slots, 32U);
  EXPECT_EQ(shape(RingArch::Newer, 1024 * kMi, 64).chunk_bytes, 2 * kMi);
  EXPECT_EQ(shape(RingArch::Newer, 32 * kMi, 32).chunk_bytes, 512 * kKi);
}

// The reference recomputes slots from the whole message where a chunk is no whole number of
// elements, and does not check what settings say.
TEST(RingTiers, WhateverIsSetStaysWithinStagingAndTheProduct) {
  for (const RingArch arch : {RingArch::Hopper, RingArch::Newer}) {
    for (const std::uint64_t element : {1ull, 2ull, 4ull, 8ull}) {
      for (const std::uint32_t nodes : {1u, 2u, 3u, 5u, 7u, 12u, 33u, 64u, 1000u, 1024u}) {
        for (std::uint64_t bytes = 1; bytes <= 4096 * kMi; bytes *= 3) {
          for (const std::uint64_t chunk : {0ull, 1ull, 7ull, 100'003ull, 1ull << 30}) {
            for (const std::uint64_t slots : {0ull, 1ull, 3ull, 1ull << 20}) {
              for (const std::uint64_t staging : {64ull, 1000ull, 1ull << 20}) {
                for (const std::uint64_t bdp : {0ull, 4096ull}) {
                  const RingRoom room{.arch = arch,
                                      .element_bytes = element,
                                      .most_chunk_bytes = 128 * kKi,
                                      .staging_bytes = staging};
                  const RingShape got =
                      ring_shape(bytes, nodes, room,
                                 {.chunk_bytes = chunk, .num_chunks = slots, .max_bdp_bytes = bdp});
                  ASSERT_GT(got.chunk_bytes, 0U);
                  ASSERT_GT(got.slots, 0U);
                  ASSERT_EQ(got.chunk_bytes % element, 0U);
                  ASSERT_LE(got.chunk_bytes, room.most_chunk_bytes);
                  ASSERT_LE(got.in_flight_bytes(), staging);
                  ASSERT_LE(got.in_flight_bytes(), bdp != 0 ? bdp : staging);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(RingTiers, TheBoundThatWonIsNamed) {
  const auto bound = [](const Settings::Ring& limits, const RingRoom& room = {}) {
    return ring_shape(16 * kMi, 8, room, limits).bound;
  };
  EXPECT_EQ(bound({}), RingBound::Tier);
  EXPECT_EQ(bound({.chunk_bytes = 4096}), RingBound::Setting);
  EXPECT_EQ(bound({.num_chunks = 4}), RingBound::Setting);
  EXPECT_EQ(bound({.max_bdp_bytes = kMi}), RingBound::Bdp);
  EXPECT_EQ(bound({.chunk_bytes = kMi, .max_bdp_bytes = kMi}), RingBound::Bdp);
  EXPECT_EQ(bound({}, {.most_chunk_bytes = 128 * kKi}), RingBound::Chunk);
  EXPECT_EQ(bound({}, {.staging_bytes = kMi}), RingBound::Staging);
  EXPECT_EQ(bound({.num_chunks = 1 << 20}, {.staging_bytes = kMi}), RingBound::Staging);
}

TEST(RingTiers, AHostKeepsToFramesAndItsWindow) {
  const auto host = [](std::uint64_t bytes, std::uint32_t nodes) {
    return ring_shape(bytes, nodes, ring_room_of_hosts({.nodes = nodes}, DType::Float32),
                      Settings::Ring{});
  };
  EXPECT_EQ(host(16 * kMi, 8).chunk_bytes, 128 * kKi);
  EXPECT_EQ(host(16 * kMi, 8).slots, 6U);
  EXPECT_EQ(host(64 * kMi, 16).chunk_bytes, 64 * kKi);
  EXPECT_EQ(host(64 * kMi, 17).chunk_bytes, 32 * kKi);
  EXPECT_EQ(host(kKi, 8).chunk_bytes, 128U);
}

// What is encoded at once is bounded, and so is what is under way; chunks are as many all the same.
TEST(RingTiers, WithACodecChunksAreWhatIsCodedAtOnce) {
  const NetworkQuestion question{.count = 64 << 20, .nodes = 4, .codec = Codec::Q4};
  const std::uint64_t bytes = partial_bytes(question, DType::Float32, question.count);
  const RingShape got =
      ring_shape(bytes, 4, ring_room_of_hosts(question, DType::Float32), Settings::Ring{});
  EXPECT_EQ(got.chunk_bytes, coded_bytes(Codec::Q4, kMostCodedElements));
  EXPECT_EQ(got.slots, kRingRooms);
  EXPECT_EQ(ring_chunk(question, DType::Float32, got.chunk_bytes), kMostCodedElements);
}

TEST(RingRounds, GoOverEveryShardOnceAndNoPieceIsMuchSmallerThanOthers) {
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float64}) {
    for (const std::uint64_t count : {0ull, 1ull, 100ull, 65'536ull, 1'000'003ull}) {
      for (const std::uint32_t nodes : {2u, 3u, 8u, 17u}) {
        const NetworkQuestion question{.count = count, .dtype = dtype, .nodes = nodes};
        const RingShape got = ring_shape(
            question.bytes(), nodes, {.element_bytes = size_of(dtype), .staging_bytes = 16 * kKi},
            Settings::Ring{});
        const RingRounds rounds(question, got.chunk_bytes / size_of(dtype), got.slots);
        const NetworkShards shards(question);
        ASSERT_GE(rounds.count(), 1U);
        for (std::uint32_t shard = 0; shard < nodes; ++shard) {
          std::uint64_t next = shards.of(shard).first, least = count, most = 0;
          for (std::uint64_t round = 0; round < rounds.count(); ++round) {
            const ElementRange piece = rounds.piece(shard, round);
            EXPECT_EQ(piece.first, next);
            EXPECT_LE(chunks_in(piece, rounds.chunk_elements()), got.slots);
            least = std::min(least, piece.size());
            most = std::max(most, piece.size());
            next = piece.last;
          }
          EXPECT_EQ(next, shards.of(shard).last);
          EXPECT_LE(most - least, 2 * kCacheLineBytes / size_of(dtype));
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
