#include "kernels/lines/ll128_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "kernels/launch/cuda_scratch.h"
#include "kernels/partition.h"

namespace arcomm {
namespace {

TEST(Ll128Layout, LanesShareAPacketsVectorsOutWithoutRest) {
  std::set<std::uint32_t> vectors;
  std::uint32_t flags = 0;
  std::uint32_t displaced = 0, free_words = 0;
  for (std::uint32_t lane = 0; lane < kLl128Lanes; ++lane) {
    if (ll128_has_flag(lane)) flags += 2;  // in either line that it stores into
    if (!ll128_has_data(lane)) {
      free_words += ll128_has_flag(lane) ? 3 : 4;  // of each of the two
      continue;
    }
    EXPECT_TRUE(vectors.insert(ll128_first_vector(lane)).second);
    EXPECT_TRUE(vectors.insert(ll128_second_vector(lane)).second);
    displaced += ll128_has_flag(lane) ? 1 : 0;
  }
  EXPECT_EQ(displaced, free_words);
  EXPECT_EQ(vectors.size(), kLl128PacketData / 16);
  EXPECT_EQ(*vectors.rbegin(), kLl128PacketData / 16 - 1);
  EXPECT_EQ(flags, kLl128PacketBytes / kLl128LineBytes);
}

TEST(Ll128Layout, AFlagEndsItsLine) {
  for (std::uint32_t lane = 0; lane < kLl128Lanes; ++lane)
    EXPECT_EQ(ll128_has_flag(lane), (lane * 16 + 16) % kLl128LineBytes == 0) << lane;
}

TEST(Ll128Layout, PacketsHoldTheBytesAndNotOneMoreThanNeeded) {
  EXPECT_EQ(ll128_packets(0), 0U);
  for (const std::uint64_t bytes : {1U, 991U, 992U, 993U, 1984U, 1U << 20}) {
    const std::uint64_t packets = ll128_packets(bytes);
    EXPECT_GE(packets * kLl128PacketData, bytes);
    EXPECT_LT((packets - 1) * kLl128PacketData, bytes);
  }
}

// Every area as [first, last) packets; none may touch another, nor the other half.
void expect_apart(std::vector<std::pair<std::uint64_t, std::uint64_t>> areas) {
  std::sort(areas.begin(), areas.end());
  for (std::size_t i = 1; i < areas.size(); ++i) EXPECT_LE(areas[i - 1].second, areas[i].first);
  EXPECT_LE(areas.back().second * kLl128PacketBytes, 2 * kLl128HalfBytes);
}

TEST(Ll128Layout, AreasLieApartForTheLargestOperations) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    const std::uint64_t whole = ll128_packets(max_one_shot_ll128_bytes(ranks));
    const std::uint64_t shard =
        ll128_packets(shard_range(kMaxTwoShotLl128Bytes, DType::Int8, ranks, 0).size());
    std::vector<std::pair<std::uint64_t, std::uint64_t>> one_shot, two_shot;
    for (const std::uint32_t epoch : {6U, 7U}) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::uint64_t input = one_shot_area(epoch, ranks, rank);
        const std::uint64_t part = two_shot_part_area(epoch, ranks, rank);
        const std::uint64_t result = two_shot_result_area(epoch, ranks, rank);
        one_shot.emplace_back(input, input + whole);
        two_shot.emplace_back(part, part + shard);
        two_shot.emplace_back(result, result + shard);
      }
    }
    expect_apart(one_shot);
    expect_apart(two_shot);
  }
}

TEST(Ll128Layout, RegionsOfTheScratchLieApartAndOnLines) {
  EXPECT_EQ(kLl128Offset % kLl128LineBytes, 0U);
  EXPECT_EQ(kLl128HalfBytes % kLl128LineBytes, 0U);
  EXPECT_GE(kLl128Offset, kCudaControlBytes + 4ull * kMaxGpuRanks * kMaxLl16Bytes);
  EXPECT_GE(kStreamOffset, kLl128Offset + 2 * kLl128HalfBytes);
}

}  // namespace
}  // namespace arcomm
