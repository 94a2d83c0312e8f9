#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/launch_cuda.h"

namespace arcomm {
namespace {

TEST(CudaAlgorithms, AreFoundByTheirNamesAndByNothingElse) {
  std::set<std::string_view> names;
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " stands there twice";
    EXPECT_EQ(cuda_algorithm_named(entry.name), entry.algorithm);
    EXPECT_EQ(name_of(entry.algorithm), entry.name);
    EXPECT_EQ(entry_of(entry.algorithm).algorithm, entry.algorithm);
  }
  EXPECT_EQ(cuda_algorithm_named("stream"), CudaAlgorithm::Stream);
  for (const char* name : {"", "Stream", "stream ", "tiled", "tiled_push"})
    EXPECT_FALSE(cuda_algorithm_named(name)) << name;
}

TEST(CudaAlgorithms, RefuseRanksAndSizesThatTheyDoNotTakeAndSayWhich) {
  EXPECT_TRUE(can_launch(CudaAlgorithm::OneShotLl16, kMaxLl16Bytes, 2));
  const Status large = can_launch(CudaAlgorithm::OneShotLl16, kMaxLl16Bytes + 1, 2);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::OutOfRange);
  EXPECT_NE(large.error().to_string().find("one_shot_ll16"), std::string::npos);
  EXPECT_TRUE(can_launch(CudaAlgorithm::Alone, 1 << 30, 1));
  EXPECT_FALSE(can_launch(CudaAlgorithm::Alone, 4, 2));
  for (const std::uint32_t ranks : {0U, 1U, kMaxGpuRanks + 1})
    EXPECT_FALSE(can_launch(CudaAlgorithm::Stream, 4, ranks)) << ranks;
  EXPECT_FALSE(can_launch(CudaAlgorithm::Stream, CudaAllReduce{.rank = 2, .ranks = 2}));
}

// A codec is nobody's until its kernels stand in the table.
TEST(CudaAlgorithms, RefuseACodecThatTheyAreNotCompiledForAndSayWhich) {
  constexpr Codec kCodec = Codec::Q8;
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    EXPECT_TRUE(can_launch(entry.algorithm, 64, entry.min_ranks)) << entry.name;
    const Status coded = can_launch(entry.algorithm, 64, entry.min_ranks, kCodec);
    ASSERT_FALSE(coded) << entry.name;
    EXPECT_EQ(coded.error().reason, Reason::Unsupported);
    EXPECT_EQ(
        coded.error().message,
        std::string(entry.name) + " is not compiled for codec q8 (number 2): ask for no codec");
  }
  EXPECT_FALSE(
      can_launch(CudaAlgorithm::TwoShot, CudaAllReduce{.count = 16, .ranks = 2, .codec = kCodec}));
}

TEST(CudaAlgorithms, WhatGpusCannotRunIsReplacedByWhatTakesTheSameOperation) {
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    for (const CudaAbilities abilities : {CudaAbilities{false}, {true}}) {
      const bool runs = abilities.atomic_128b_stores || !entry.needs_atomic_128b_stores;
      EXPECT_EQ(can_run(entry.algorithm, abilities), runs);
      for (const std::uint64_t bytes : {std::uint64_t{1}, kMaxLl16Bytes, kMaxLl16Bytes + 1}) {
        const CudaAlgorithm instead = algorithm_among(abilities, entry.algorithm, bytes);
        if (runs) {
          EXPECT_EQ(instead, entry.algorithm);
        } else {
          EXPECT_TRUE(can_run(instead, {}));
          EXPECT_TRUE(can_launch(instead, bytes, kMaxGpuRanks));
        }
      }
    }
  }
}

TEST(CudaAlgorithms, TheScratchHasRoomForWhatIsPutThere) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    EXPECT_GT(stream_end(ranks), kStreamOffset);
    EXPECT_LE(stream_end(ranks), cuda_scratch_bytes(ranks));
    EXPECT_LE(copy_end(ranks), cuda_scratch_bytes(ranks));
    EXPECT_GE(kCopyOffset, kLl128Offset + 2 * kLl128HalfBytes)
        << "lines carry flags from one operation to the next";
    EXPECT_TRUE(can_launch(CudaAlgorithm::CopyEngine, max_copy_engine_bytes(ranks), ranks));
    EXPECT_FALSE(can_launch(CudaAlgorithm::CopyEngine, max_copy_engine_bytes(ranks) + 1, ranks));
  }
}

// 33 MiB of its GPU otherwise, for each communicator of one rank and each rank alone on its node.
TEST(CudaAlgorithms, ARankThatIsAloneNeedsTheControlPageOnly) {
  EXPECT_EQ(cuda_scratch_bytes(1), kCudaControlBytes);
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    EXPECT_EQ(entry.min_ranks < 2, entry.algorithm == CudaAlgorithm::Alone) << entry.name;
  }
}

TEST(CudaAlgorithms, MoreRanksLeaveEachLessRoomForLines) {
  EXPECT_TRUE(can_launch(CudaAlgorithm::OneShotLl128, 4 << 20, 2));
  EXPECT_FALSE(can_launch(CudaAlgorithm::OneShotLl128, (4 << 20) + 1, 2));
  EXPECT_FALSE(can_launch(CudaAlgorithm::OneShotLl128, (1 << 20) + 1, 8));
  EXPECT_TRUE(can_launch(CudaAlgorithm::TwoShotLl128, kMaxTwoShotLl128Bytes, 8));
  EXPECT_FALSE(can_launch(CudaAlgorithm::TwoShotLl128, kMaxTwoShotLl128Bytes + 1, 2));
}

}  // namespace
}  // namespace arcomm
