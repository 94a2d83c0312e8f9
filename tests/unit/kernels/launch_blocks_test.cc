// How many blocks launched operations get, on GPUs of any number of SMs.
#include "kernels/launch/launch_blocks.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

constexpr std::uint32_t kSpared = 12;

constexpr CudaAlgorithm kWaiting[] = {CudaAlgorithm::OneShotLl16,  CudaAlgorithm::TwoShot,
                                      CudaAlgorithm::Stream,       CudaAlgorithm::Flash,
                                      CudaAlgorithm::OneShotLl128, CudaAlgorithm::TwoShotLl128};

TEST(LaunchBlocks, AllBlocksOfOneOperationFitOnTheGpuWithTheFewestSms) {
  for (const std::uint32_t sms : {1U, 4U, 12U, 24U, 60U, 112U, 132U, 148U}) {
    const std::uint32_t most = most_launched_blocks(sms, kSpared);
    EXPECT_GE(most, 1u);
    EXPECT_LE(most, std::max(1U, sms - std::min(sms, kSpared)));
    for (const CudaAlgorithm algorithm : kWaiting) {
      for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
        for (std::uint64_t count = 1; count <= 1ull << 30; count = count * 3 + 1) {
          const std::uint32_t blocks =
              launched_blocks(algorithm, count, DType::Float16, ranks, most);
          ASSERT_GE(blocks, 1u);
          ASSERT_LE(blocks, most) << name_of(algorithm) << " " << count;
        }
      }
    }
  }
}

TEST(LaunchBlocks, AnH200KeepsItsHundredAndTwelveAndASmallerGpuHasFewer) {
  EXPECT_EQ(most_launched_blocks(132, kSpared), 112u);
  EXPECT_EQ(most_launched_blocks(112, kSpared), 100u);
  EXPECT_EQ(most_launched_blocks(60, kSpared), 48u);
  EXPECT_EQ(most_launched_blocks(24, kSpared), 12u);
  EXPECT_EQ(most_launched_blocks(7, kSpared), 1u);
  EXPECT_EQ(most_launched_blocks(0, kSpared), kDefaultCudaBlocks) << "nobody knows";
}

// As the kernels' own rules were measured on 132 SMs.
TEST(LaunchBlocks, TheRulesAreThoseThatWereMeasured) {
  constexpr std::uint32_t kMost = kDefaultCudaBlocks;
  EXPECT_EQ(ll16_blocks(1, kMost), 1u);
  EXPECT_EQ(ll16_blocks(64 * 1024, kMost), 16u);
  EXPECT_EQ(ll16_blocks(512 * 1024, kMost), 112u);
  EXPECT_EQ(ll128_blocks(7, 1, kMost), 2u);
  EXPECT_EQ(ll128_blocks(2, 7, kMost), 2u) << "a packet is one block's";
  EXPECT_EQ(ll128_blocks(4000, 1, kMost), 112u);
  EXPECT_EQ(two_shot_blocks(4 << 20, 2, kMost), 64u);
  EXPECT_EQ(two_shot_blocks(1 << 30, 2, kMost), 112u);
  EXPECT_EQ(flash_blocks(1 << 20, 2, false, kMost), 112u);
  EXPECT_EQ(flash_blocks(256 * 1024, 4, true, kMost), 16u);
  EXPECT_EQ(stream_blocks(256, DType::Float32, 2, kMost), 1u);
  EXPECT_EQ(stream_blocks(64 << 20, DType::Float32, 2, kMost), 112u);
}

TEST(LaunchBlocks, WhoWaitsForNobodyNeedsNoRoomOfItsOwn) {
  EXPECT_EQ(launched_blocks(CudaAlgorithm::CopyEngine, 1 << 28, DType::Float32, 4, 112), 1u);
  EXPECT_EQ(launched_blocks(CudaAlgorithm::Alone, 1 << 20, DType::Float32, 1, 112), 0u);
  EXPECT_EQ(launched_blocks(CudaAlgorithm::TwoShot, 0, DType::Float32, 4, 112), 0u);
}

}  // namespace
}  // namespace arcomm
