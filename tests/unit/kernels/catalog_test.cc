#include "kernels/catalog.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

TEST(Catalog, FindsEveryAlgorithmByItsName) {
  for (const AlgorithmEntry& entry : catalog()) {
    EXPECT_EQ(algorithm_named(entry.name), entry.algorithm);
    EXPECT_EQ(&entry_of(entry.algorithm), &entry);
    EXPECT_FALSE(entry.description.empty());
  }
  EXPECT_EQ(algorithm_named("Inline"), std::nullopt);
  EXPECT_EQ(algorithm_named(""), std::nullopt);
}

TEST(Catalog, DefaultsCanAlwaysRun) {
  for (std::uint32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (std::uint64_t bytes = 0; bytes < (std::uint64_t{1} << 40); bytes = bytes * 2 + 1) {
      for (const std::uint32_t streams : {0U, 1U, 2U, 64U, 500U}) {
        const Choice choice = default_choice(bytes, ranks, streams, 32 << 20);
        ASSERT_TRUE(can_run(choice, bytes, ranks))
            << bytes << " bytes, " << ranks << " ranks, " << streams
            << " streams: " << name_of(choice.algorithm);
      }
    }
  }
}

TEST(Catalog, DefaultsGrowFromInlineOverTiledToStreaming) {
  EXPECT_EQ(default_choice(1024, 4, 2, 32 << 20).algorithm, Algorithm::Inline);
  EXPECT_EQ(default_choice(1 << 20, 4, 2, 32 << 20).algorithm, Algorithm::Tiled);
  EXPECT_EQ(default_choice(256 << 20, 4, 2, 32 << 20).algorithm, Algorithm::TiledStreaming);
}

TEST(Catalog, RefusesChoicesThatAPersonMayHaveWritten) {
  const Choice tiled{.algorithm = Algorithm::Tiled, .tile_bytes = 65536, .streams = 2};
  EXPECT_TRUE(can_run(tiled, 1 << 20, 4));
  Choice wrong = tiled;
  wrong.tile_bytes = kMinTileBytes - 1;
  EXPECT_FALSE(can_run(wrong, 1 << 20, 4));
  wrong = tiled;
  wrong.streams = 0;
  EXPECT_FALSE(can_run(wrong, 1 << 20, 4));
  EXPECT_FALSE(can_run(tiled, 1 << 20, kMaxRanks + 1));
  EXPECT_FALSE(can_run(tiled, 1 << 20, 0));
  EXPECT_FALSE(can_run(Choice{}, std::uint64_t{1} << 30, 4)) << "inline would hold the worker up";
}

}  // namespace
}  // namespace arcomm
