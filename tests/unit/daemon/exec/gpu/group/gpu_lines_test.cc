// Pairs of GPUs between which stores of 128 bytes do not arrive whole: who is told, and what runs
// instead.
#include <set>
#include <string>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuLines : public GpuWorkerTest {
 protected:
  // What one operation of a communicator on these GPUs ran as.
  std::set<CudaAlgorithm> ran_on(const std::vector<int>& gpus) {
    std::vector<GpuRank*> ranks;
    ranks.reserve(gpus.size());
    for (const int gpu : gpus) ranks.push_back(&rank(gpu, kLarge * sizeof(float)));
    form(ranks, gpus);
    node_.algorithms();
    for (GpuRank* one : ranks) one->start(plan(*one, kLarge), LaunchPath::Launched);
    for (GpuRank* one : ranks) EXPECT_TRUE(one->wait(LaunchPath::Launched));
    return node_.algorithms();
  }
};

TEST_F(GpuLines, AreUsedWhereAllPairsStoreThemWhole) {
  start_with("two_shot_ll128");
  EXPECT_EQ(ran_on({0, 1, 2}), std::set{CudaAlgorithm::TwoShotLl128});
  EXPECT_EQ(ran_on({2, 0}), std::set{CudaAlgorithm::TwoShotLl128});
}

TEST_F(GpuLines, AreNotUsedByCommunicatorsOverATornPair) {
  for (const auto& torn : {std::pair{0, 1}, std::pair{1, 0}}) {
    node_.torn = {torn};
    start_with("two_shot_ll128");
    EXPECT_EQ(ran_on({0, 1}), std::set{CudaAlgorithm::TwoShot});
    EXPECT_EQ(ran_on({0, 1, 2}), std::set{CudaAlgorithm::TwoShot});
    EXPECT_EQ(ran_on({1, 2}), std::set{CudaAlgorithm::TwoShotLl128});
    EXPECT_EQ(ran_on({0, 2}), std::set{CudaAlgorithm::TwoShotLl128});
  }
}

// A trial of one idle pair shows nothing of three that write into one.
TEST_F(GpuLines, AreNotUsedWhereTheyTearUnderTheLoadOfSeveralWriters) {
  node_.torn_under_load = 1;
  start_with("two_shot_ll128");
  EXPECT_EQ(ran_on({0, 1}), std::set{CudaAlgorithm::TwoShot});
  EXPECT_EQ(ran_on({0, 2}), std::set{CudaAlgorithm::TwoShotLl128});
}

TEST_F(GpuLines, NamedKernelThatNeedsThemIsReplacedWhereTheyAreTorn) {
  for (const CudaAlgorithm needs : {CudaAlgorithm::OneShotLl128, CudaAlgorithm::TwoShotLl128}) {
    node_.torn = {};
    start_with(std::string(name_of(needs)));
    expect_serving(kLarge, 20);  // the most of them ahead of their calls
    EXPECT_EQ(node_.algorithms(), std::set{needs});
    node_.torn = {{1, 0}};
    start_with(std::string(name_of(needs)));
    expect_serving(kLarge, 20);
    EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::TwoShot});
  }
}

TEST_F(GpuLines, KernelOfTheTableThatNeedsThemIsReplacedWhereTheyAreTorn) {
  node_.torn = {{0, 1}};
  start({});
  auto table = std::make_shared<TuningTable>();
  table->gpu.points = {{2, 1 << 20, CudaAlgorithm::TwoShotLl128, 5.0}};
  table->gpu.settle();
  worker_->use_tuning(table);
  expect_serving(kLarge, 20);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::TwoShot});
}

TEST_F(GpuLines, OtherKernelsRunWhereTheyAreTorn) {
  node_.torn = {{0, 1}, {1, 0}};
  start_with("stream");
  expect_serving(kLarge);
  EXPECT_EQ(node_.algorithms(), std::set{CudaAlgorithm::Stream});
}

}  // namespace
}  // namespace arcomm::test
