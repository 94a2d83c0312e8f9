// Plans, and memory that the library shares, keeps and gives back.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/client_library.h"

namespace arcomm::support {
namespace {

TEST_F(ClientLibrary, StartsPlansOverEveryKindOfMemory) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  constexpr int kRanks = 3;
  form(kRanks);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1000}, std::size_t{20'000}}) {
    std::vector<std::unique_ptr<RankMemory>> memory;
    std::vector<arc::Plan> plans;
    for (int rank = 0; rank < kRanks; ++rank) {
      memory.push_back(std::make_unique<RankMemory>(rank, count));
      plans.emplace_back(comm(rank), memory.back()->send, memory.back()->recv, count);
    }
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < kRanks; ++rank) {
        RankMemory& mine = *memory[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < count; ++i) mine.send[i] = element(rank, i);
      }
      for (arc::Plan& plan : plans) plan.start();
      for (arc::Plan& plan : plans) plan.wait();
      for (const auto& mine : memory) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(mine->recv[i], sum_of(kRanks, i));
      }
    }
  }
}

TEST_F(ClientLibrary, StartsAPlanOnceAtATime) {
  start();
  form(2);
  float value = 1;
  arcPlan_t plan = nullptr;
  ASSERT_EQ(arcPlanCreateAllReduce(&plan, &value, &value, 1, arcFloat32, arcSum, comm(0).get()),
            arcSuccess);
  EXPECT_EQ(arcPlanWait(plan, 0), arcFailedPrecondition);
  ASSERT_EQ(arcPlanStart(plan, nullptr), arcSuccess);
  EXPECT_EQ(arcPlanStart(plan, nullptr), arcFailedPrecondition);
  EXPECT_EQ(arcPlanDestroy(plan), arcFailedPrecondition);
  float other = 2;
  comm(1).all_reduce(&other, &other, 1);
  EXPECT_EQ(arcPlanWait(plan, 0), arcSuccess);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(arcPlanDestroy(plan), arcSuccess);
  EXPECT_EQ(arcPlanDestroy(plan), arcNotFound);
}

TEST_F(ClientLibrary, WaitsForAPlanOnlyAsLongAsAsked) {
  start({}, 3000);
  form(1);
  float value = 1;
  arcPlan_t plan = nullptr;
  ASSERT_EQ(arcPlanCreateAllReduce(&plan, &value, &value, 1, arcFloat32, arcSum, comm(0).get()),
            arcSuccess);
  daemon_->freeze();
  // Its first start asks the daemon for staging memory, and waits for the answer.
  std::atomic<bool> begins{false};
  std::thread starting([plan, &begins] {
    begins = true;
    EXPECT_EQ(arcPlanStart(plan, nullptr), arcSuccess);
    EXPECT_EQ(arcPlanWait(plan, 0), arcSuccess);
    EXPECT_EQ(arcPlanDestroy(plan), arcSuccess);
  });
  while (!begins) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(200));  // it waits by now, for an answer
  const auto begin = Clock::now();
  EXPECT_EQ(arcPlanWait(plan, 10), arcFailedPrecondition) << "it is not started yet";
  EXPECT_EQ(arcPlanDestroy(plan), arcFailedPrecondition);
  EXPECT_LT(since(begin), milliseconds(1000));
  daemon_->thaw();
  starting.join();
}

TEST_F(ClientLibrary, KeepsMemoryThatAnOperationUses) {
  start();
  form(2);
  arc::Buffer<float> memory(1000);
  arc::Ticket ticket = comm(0).all_reduce_async(memory.data(), memory.data(), 1000);
  EXPECT_EQ(arcMemFree(memory.data()), arcFailedPrecondition);
  std::vector<float> other(1000);
  comm(1).all_reduce(other.data(), other.data(), 1000);
  ticket.wait();
}

TEST_F(ClientLibrary, SharesAMappingOfASealedMemfdAsItIs) {
  start();
  form(1);
  constexpr std::size_t kBytes = 1 << 20;
  const int fd = ::memfd_create("arcomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* inside = static_cast<float*>(memory) + 1027;
  ASSERT_EQ(arcMemRegister(inside, 4000), arcSuccess) << arcGetLastError(nullptr);
  EXPECT_EQ(arcMemRegister(inside + 10, 4), arcAlreadyExists);
  inside[0] = 7;
  comm(0).all_reduce(inside, inside, 1000);
  EXPECT_EQ(inside[0], 7);
  EXPECT_EQ(arcMemFree(inside), arcNotFound);
  EXPECT_EQ(arcMemDeregister(inside), arcSuccess);
  EXPECT_EQ(arcMemDeregister(inside), arcNotFound);
  ::munmap(memory, kBytes);
  ::close(fd);
}

}  // namespace
}  // namespace arcomm::support
