// The slots in a communicator's scratches: they come with the first plan of an algorithm that needs
// them, on all GPUs or on none, and nothing fails where they do not.
#include <gtest/gtest.h>

#include "kernels/launch/cuda_scratch.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuSlots : public GpuWorkerTest {
 protected:
  static constexpr std::uint64_t kSlotBytes = cuda_scratch_bytes(2) - cuda_state_bytes(2);

  // gpu.algorithm: what is launched needs slots.
  void start_with_limit(const std::string& algorithm, std::uint64_t scratch_bytes) {
    Settings settings;
    settings.gpu.algorithm = algorithm;
    settings.gpu.scratch_bytes = scratch_bytes;
    start(settings);
  }
  void make_plans() {
    plans_.clear();
    for (const GpuRank* rank : here_) plans_.push_back(plan(*rank, kLarge));
  }
  std::set<CudaAlgorithm> run(int times) {
    node_.algorithms();
    for (int i = 0; i < times; ++i) {
      for (std::size_t rank = 0; rank < here_.size(); ++rank) {
        for (std::uint64_t e = 0; e < kLarge; ++e)
          here_[rank]->send()[e] = static_cast<float>(i + static_cast<int>(rank));
        here_[rank]->start(plans_[rank], LaunchPath::Launched);
      }
      for (const GpuRank* rank : here_) {
        EXPECT_TRUE(rank->wait(LaunchPath::Launched));
        EXPECT_EQ(rank->recv()[0], static_cast<float>(2 * i + 1));
        EXPECT_EQ(rank->recv()[kLarge - 1], static_cast<float>(2 * i + 1));
      }
    }
    return node_.algorithms();
  }
  std::string why() { return inspect().communicators.back().why_no_slots; }

  std::vector<GpuRank*> here_;
  std::vector<PlanId> plans_;
};

TEST_F(GpuSlots, ComeOnAllGpusWithTheFirstPlanThatNeedsThem) {
  start_with("stream");
  here_ = group(2);
  const std::uint64_t before = node_.allocated[0], other = node_.allocated[1],
                      third = node_.allocated[2];
  EXPECT_LT(before, cuda_scratch_bytes(2)) << "nobody has asked for slots";
  make_plans();
  EXPECT_EQ(run(20), std::set{CudaAlgorithm::Stream});
  EXPECT_EQ(node_.allocated[0], before + kSlotBytes);
  EXPECT_EQ(node_.allocated[1], other + kSlotBytes);
  EXPECT_EQ(node_.allocated[2], third);
  EXPECT_EQ(why(), "");
}

TEST_F(GpuSlots, DoNotComeWithPlansThatNeedNone) {
  start_with("two_shot");
  here_ = group(2);
  const std::uint64_t before = node_.allocated[0];
  make_plans();
  EXPECT_EQ(run(20), std::set{CudaAlgorithm::TwoShot});
  EXPECT_EQ(node_.allocated[0], before);
}

TEST_F(GpuSlots, BeyondTheLimitAreDoneWithoutAndSaidSo) {
  start_with_limit("stream", cuda_scratch_bytes(2) - 1);
  here_ = group(2);
  const std::uint64_t before = node_.allocated[0];
  make_plans();
  EXPECT_EQ(run(20), std::set{CudaAlgorithm::TwoShot});
  EXPECT_EQ(node_.allocated[0], before);
  EXPECT_NE(why().find("gpu.scratch_bytes is "), std::string::npos) << why();
  EXPECT_NE(why().find("on GPU-0"), std::string::npos) << why();
}

TEST_F(GpuSlots, CountWhatOtherCommunicatorsHaveOfTheGpu) {
  start_with_limit("stream", cuda_scratch_bytes(2) + cuda_state_bytes(2));
  here_ = group(2);
  make_plans();
  EXPECT_EQ(run(3), std::set{CudaAlgorithm::Stream});
  const std::vector<GpuRank*> first = here_;
  const std::vector<PlanId> plans = plans_;
  here_ = group(2);
  make_plans();
  EXPECT_EQ(run(3), std::set{CudaAlgorithm::TwoShot});
  here_ = first;
  plans_ = plans;
  EXPECT_EQ(run(3), std::set{CudaAlgorithm::Stream});
}

TEST_F(GpuSlots, ThatOneGpuHasNoMemoryForAreOnNone) {
  start_with("stream");
  here_ = group(2);
  const std::uint64_t before = node_.allocated[0];
  node_.refuses_growth = 1;
  make_plans();
  EXPECT_EQ(run(20), std::set{CudaAlgorithm::TwoShot});
  EXPECT_EQ(node_.allocated[0], before);
  EXPECT_NE(why().find("GPU-1: no "), std::string::npos) << why();
}

// Of two GPUs whose grids do not leave: nothing waits for the slots, and they come later.
TEST_F(GpuSlots, AreDoneWithoutWhileTheGpusCannotBeQuiesced) {
  start_with("stream");
  here_ = group(2);
  const std::uint64_t before = node_.allocated[0];
  std::vector<PlanId> small;
  for (const GpuRank* rank : here_) small.push_back(plan(*rank, kSmall));
  node_.stuck = true;
  for (std::size_t rank = 0; rank < 2; ++rank)
    here_[rank]->start(small[rank], LaunchPath::Resident);
  for (const GpuRank* rank : here_) EXPECT_TRUE(rank->wait(LaunchPath::Resident));
  make_plans();
  EXPECT_EQ(run(3), std::set{CudaAlgorithm::TwoShot});
  EXPECT_EQ(node_.allocated[0], before);
  EXPECT_EQ(why(), "") << "nothing is refused";
  node_.stuck = false;
  EXPECT_TRUE(eventually([&] { return node_.allocated[0] == before + kSlotBytes; }));
  EXPECT_EQ(run(3), std::set{CudaAlgorithm::Stream});
}

}  // namespace
}  // namespace arcomm::test
