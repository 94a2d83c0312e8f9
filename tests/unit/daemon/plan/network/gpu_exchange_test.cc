#include "daemon/plan/network/gpu_exchange.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

GpuExchange of_floats(std::uint64_t bytes, std::uint32_t lanes = 8) {
  return GpuExchange::of({.count = bytes / 4, .nodes = 2, .one_seat_each = true}, lanes);
}
std::uint64_t chunk_bytes(const GpuExchange& cut) {
  return cut.chunk_elements * size_of(cut.partials);
}

TEST(GpuExchange, LanesAreAskedForOrFollowFromTheNumberOfNodes) {
  EXPECT_EQ(GpuExchange::lanes_among(2, 0), 8u);
  EXPECT_EQ(GpuExchange::lanes_among(5, 0), 4u) << "each node more takes staging for each lane";
  EXPECT_EQ(GpuExchange::lanes_among(2, 24), 24u);
  EXPECT_EQ(GpuExchange::lanes_among(2, 1000), GpuExchange::kMostLanes);
}

TEST(GpuExchange, LanesAndChunksGrowWithTheOperation) {
  EXPECT_EQ(of_floats(1 << 10).lanes, 1u);
  EXPECT_EQ(of_floats(1 << 10).blocks(), 2u);
  EXPECT_EQ(of_floats(16 << 10).lanes, 1u);
  EXPECT_EQ(of_floats(64 << 10).lanes, 4u);
  EXPECT_EQ(of_floats(256 << 10).lanes, 8u);
  EXPECT_EQ(of_floats(256 << 10).blocks(), 16u);
  EXPECT_EQ(chunk_bytes(of_floats(256 << 10)), 32u << 10);
  EXPECT_EQ(of_floats(1 << 20).chunks, 16u) << "two for each lane: one goes while one is staged";
  EXPECT_EQ(chunk_bytes(of_floats(64 << 20)), net::kMostChunkBytes);
  EXPECT_EQ(of_floats(64 << 20, 24).lanes, 24u);
}

TEST(GpuExchange, WithACodecChunksAreWholeBlocksOfAsManyElementsWhateverTheyComeTo) {
  for (const Codec codec : kRealCodecs) {
    for (const DType dtype : {DType::Float16, DType::Float32}) {
      for (const bool one_seat_each : {false, true}) {
        for (const std::uint64_t count : {1ull, 8192ull, 100'000ull, 1ull << 21, 1ull << 30}) {
          const GpuExchange cut = GpuExchange::of({.count = count,
                                                   .dtype = dtype,
                                                   .nodes = 2,
                                                   .one_seat_each = one_seat_each,
                                                   .codec = codec},
                                                  8);
          const GpuExchange of_halves = GpuExchange::of(
              {.count = count, .dtype = DType::Float16, .nodes = 2, .one_seat_each = true}, 8);
          EXPECT_EQ(cut.chunk_elements, of_halves.chunk_elements);
          EXPECT_EQ(cut.lanes, of_halves.lanes);
          EXPECT_EQ(cut.chunk_elements % kCodecBlock, 0u);
          EXPECT_LE(coded_bytes(codec, cut.chunk_elements), cut.slot_bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
