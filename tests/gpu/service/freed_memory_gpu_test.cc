// What a client does to the GPU when its memory goes in the middle of an operation: freed by it, or
// with it when it is killed. This process is the daemon, by the daemon's own importer and kernels;
// rank 0 has memory of its own, rank 1's is another process's, 1 GB a buffer. One GPU is enough.
//
// NVIDIA calls it undefined to free memory that another process has open by a CUDA IPC handle, and
// says of allocations of cuMemCreate that they live until the last who imported them lets go. This
// says what holds on this machine, with this driver: the kernel ends with the right sum, nobody
// else's memory is touched, and the GPU serves on.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/gpu/kernels/node/gpu_node.h"
#include "tests/gpu/service/memory_owner.h"

namespace arcomm::gpu {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kBytes = 1 << 30, kCount = kBytes / sizeof(float);
constexpr std::size_t kNoLeak = 64 << 20;

enum class Loss : std::uint8_t { Freed, Killed };

class FreedMemoryTest : public testing::TestWithParam<std::tuple<Sharing, Loss>> {
 protected:
  void SetUp() override {
    Result<GpuNode> node = GpuNode::open(2, kBytes, GpuNode::Gpus::Shared);
    ASSERT_TRUE(node) << node.error().to_string();
    node_ = std::make_unique<GpuNode>(std::move(*node));
    node_->timeout_ns = 60'000'000'000;
    std::vector<float> sent(kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) sent[i] = sent_by(0, i);
    ASSERT_EQ(cudaMemcpy((*node_)[0].send.data(), sent.data(), kBytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    start_owner();
  }
  void TearDown() override {
    for (Memory& one : imported_) one = {};
    owner_.reset();
    stranger_.reset();
  }

  void start_owner() {
    const auto [sharing, loss] = GetParam();
    for (Memory& one : imported_) one = {};
    owner_.reset();
    Result<MemoryOwner> owner = MemoryOwner::start(sharing, (*node_)[1].device->ordinal(), kBytes);
    ASSERT_TRUE(owner) << owner.error().to_string();
    owner_.emplace(std::move(*owner));
    for (std::size_t i = 0; i < 2; ++i) {
      const MemoryOwner::Part& part = owner_->parts()[i];
      const Status imported =
          (*node_)[1].device->import(part.handle, part.descriptor.get(), imported_[i]);
      ASSERT_TRUE(imported) << imported.error().to_string();
    }
  }
  void lose() {
    if (std::get<Loss>(GetParam()) == Loss::Killed) return owner_->kill();
    const Status freed = owner_->free_memory();
    ASSERT_TRUE(freed) << freed.error().to_string();
  }

  CudaAllReduce call(int rank) {
    CudaAllReduce made = node_->call(rank, kCount, DType::Float32, ReduceOp::Sum);
    const int ordinal = (*node_)[rank].device->ordinal();
    made.send[1] = imported_[0].data_on(ordinal);
    made.recv[1] = imported_[1].data_on(ordinal);
    return made;
  }
  void launch(CudaAlgorithm algorithm, int rank) {
    node_->use(rank);
    const Status launched = launch_all_reduce(algorithm, call(rank), node_->fitting({}),
                                              (*node_)[rank].stream->handle());
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  void expect_ended(const std::string& what) {
    const Status ended = node_->synchronize(std::chrono::seconds(90));
    ASSERT_TRUE(ended) << what << ": " << ended.error().to_string();
    for (int rank = 0; rank < 2; ++rank)
      ASSERT_EQ(node_->outcome(rank).code, 0U) << what << ", rank " << rank;
  }
  void expect_sums(const void* memory, const std::string& what) {
    std::vector<float> seen(kCount);
    ASSERT_EQ(cudaMemcpy(seen.data(), memory, kBytes, cudaMemcpyDeviceToHost), cudaSuccess) << what;
    for (std::uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(seen[i], sent_by(0, i) + sent_by(1, i)) << what << ", element " << i;
  }
  void expect_sums(const std::string& what) {
    expect_sums((*node_)[0].recv.data(), what + ", rank 0");
    node_->use(1);
    expect_sums(imported_[1].data_on((*node_)[1].device->ordinal()), what + ", rank 1");
  }
  // All that run at this size.
  std::vector<CudaAlgorithm> algorithms() const {
    std::vector<CudaAlgorithm> all = node_->algorithms();
    std::erase_if(all, [](CudaAlgorithm one) { return !can_launch(one, kBytes, 2); });
    return all;
  }
  std::size_t free_bytes() {
    std::size_t free = 0, all = 0;
    node_->use(1);
    EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
    return free;
  }

  std::unique_ptr<GpuNode> node_;
  std::optional<MemoryOwner> owner_, stranger_;
  std::array<Memory, 2> imported_;  // rank 1's send and recv
};

// Rank 0's kernel runs and waits for rank 1's; then the memory goes, and a stranger takes all that
// is free; then rank 1's kernel comes, and both read and write where the memory was.
TEST_P(FreedMemoryTest, AnOperationThatIsUnderWayEndsRightAndTouchesNobodyElses) {
  for (const CudaAlgorithm algorithm : algorithms()) {
    const std::string what(name_of(algorithm));
    ASSERT_NO_FATAL_FAILURE(start_owner());
    launch(algorithm, 0);
    std::this_thread::sleep_for(milliseconds(20));
    ASSERT_FALSE((*node_)[0].stream->query()) << what << " did not wait for rank 1";
    ASSERT_NO_FATAL_FAILURE(lose());
    Result<MemoryOwner> stranger = MemoryOwner::start_stranger((*node_)[1].device->ordinal());
    ASSERT_TRUE(stranger) << stranger.error().to_string();
    stranger_.emplace(std::move(*stranger));
    const Result<std::uint64_t> taken = stranger_->take_all();
    ASSERT_TRUE(taken.ok()) << taken.error().to_string();
    launch(algorithm, 1);
    ASSERT_NO_FATAL_FAILURE(expect_ended(what));
    ASSERT_NO_FATAL_FAILURE(expect_sums(what));
    const Result<bool> untouched = stranger_->is_untouched();
    ASSERT_TRUE(untouched.ok()) << untouched.error().to_string();
    EXPECT_TRUE(*untouched) << what << " wrote into another process's memory";
    std::printf("%s: right beside %llu MB of a stranger's\n", what.c_str(),
                static_cast<unsigned long long>(*taken));
    stranger_.reset();
  }
}

// At any moment: while the kernels of many operations move the bytes.
TEST_P(FreedMemoryTest, OperationsThatRunWhenItGoesEndRight) {
  constexpr int kOperations = 40;
  const std::size_t before = free_bytes();
  for (const CudaAlgorithm algorithm : algorithms()) {
    const std::string what(name_of(algorithm));
    ASSERT_NO_FATAL_FAILURE(start_owner());
    for (int i = 0; i < kOperations; ++i) {
      for (int rank = 0; rank < 2; ++rank) ASSERT_NO_FATAL_FAILURE(launch(algorithm, rank));
    }
    std::this_thread::sleep_for(milliseconds(10));
    ASSERT_NO_FATAL_FAILURE(lose());
    std::printf("%s: %s when its memory had gone\n", what.c_str(),
                (*node_)[0].stream->query() ? "had ended" : "was under way");
    ASSERT_NO_FATAL_FAILURE(expect_ended(what));
    ASSERT_NO_FATAL_FAILURE(expect_sums(what));
  }
  // What the daemon lets go of is the GPU's again; others are served.
  for (Memory& one : imported_) one = {};
  owner_.reset();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (free_bytes() + 2 * kBytes + kNoLeak < before && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_GE(free_bytes() + kNoLeak, before) << "memory of a process that has gone is kept";
  ASSERT_NO_FATAL_FAILURE(start_owner());
  for (int rank = 0; rank < 2; ++rank) launch(algorithms().front(), rank);
  ASSERT_NO_FATAL_FAILURE(expect_ended("afterwards"));
  expect_sums("afterwards");
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Sharing, Loss>>& tested) {
  const auto [sharing, loss] = tested.param;
  return std::string(sharing == Sharing::CudaIpc ? "CudaIpc" : "Descriptor") +
         (loss == Loss::Freed ? "Freed" : "Killed");
}

INSTANTIATE_TEST_SUITE_P(All, FreedMemoryTest,
                         testing::Combine(testing::Values(Sharing::CudaIpc, Sharing::Descriptor),
                                          testing::Values(Loss::Freed, Loss::Killed)),
                         name_of_case);

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  const int owner = arcomm::gpu::run_as_owner(argc, argv);
  if (owner >= 0) return owner;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
