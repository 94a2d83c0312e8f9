// Plans, and memory that the library shares, keeps and gives back.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "proto/unique_fd.h"
#include "tests/integration/client_library/client_library.h"
#include "tests/support/metrics_scrape.h"

namespace arcomm::support {
namespace {

// What arcMemRegister shares as it is.
struct SealedMapping {
  explicit SealedMapping(std::size_t size)
      : bytes(size), fd(::memfd_create("arcomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
  }
  SealedMapping(const SealedMapping&) = delete;
  SealedMapping& operator=(const SealedMapping&) = delete;
  ~SealedMapping() { ::munmap(memory, bytes); }

  const std::size_t bytes;
  const UniqueFd fd;
  void* memory = nullptr;
};

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

TEST_F(ClientLibrary, FreesNothingThatTheDaemonDidNotHearOf) {
  start({}, kShort.count());
  form(1);
  constexpr std::size_t kCount = 20'000;
  void* memory = nullptr;
  ASSERT_EQ(arcMemAlloc(&memory, kCount * sizeof(float)), arcSuccess);
  auto* values = static_cast<float*>(memory);
  const auto registered_bytes = [this] {
    return Metrics::scrape(*daemon_).value("arcomm_registered_bytes");
  };
  {
    std::vector<float> elsewhere(kCount, 1);  // what staging takes is there before it is counted
    comm(0).all_reduce(elsewhere.data(), elsewhere.data(), kCount);
  }
  const double before = registered_bytes();
  daemon_->freeze();
  const arcResult_t unheard = arcMemFree(memory);
  daemon_->thaw();
  ASSERT_EQ(unheard, arcDeadlineExceeded);
  EXPECT_EQ(last().reason, arcReasonTimeout);
  // It is still the caller's, and good for operations, whether or not the daemon has it.
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  comm(0).all_reduce(values, values, kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], static_cast<float>(i));
  EXPECT_EQ(arcMemFree(memory), arcSuccess) << arcGetLastError(nullptr);
  EXPECT_EQ(arcMemFree(memory), arcNotFound);
  EXPECT_LE(registered_bytes(), before - kCount * sizeof(float)) << "the daemon still has it";
}

TEST_F(ClientLibrary, ReadsWhatIsThereNowWhereADeregistrationFailed) {
  start({}, kShort.count());
  form(1);
  const SealedMapping mapping(1 << 20);
  ASSERT_EQ(arcMemRegister(mapping.memory, mapping.bytes), arcSuccess) << arcGetLastError(nullptr);
  daemon_->freeze();
  EXPECT_EQ(arcMemDeregister(mapping.memory), arcDeadlineExceeded);
  daemon_->thaw();
  // Who does not heed that may have something else at the same place by now.
  ASSERT_EQ(::mmap(mapping.memory, mapping.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            mapping.memory);
  auto* values = static_cast<float*>(mapping.memory);
  values[0] = 7;
  float result = 0;
  EXPECT_EQ(arcAllReduce(values, &result, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcSuccess)
      << arcGetLastError(nullptr);
  EXPECT_EQ(result, 7) << "the daemon read the memory that was there before";
  EXPECT_EQ(arcMemDeregister(values), arcSuccess) << arcGetLastError(nullptr);
  EXPECT_EQ(arcMemDeregister(values), arcNotFound);
}

TEST_F(ClientLibrary, SharesAMappingOfASealedMemfdAsItIs) {
  start();
  form(1);
  const SealedMapping mapping(1 << 20);
  auto* inside = static_cast<float*>(mapping.memory) + 1027;
  ASSERT_EQ(arcMemRegister(inside, 4000), arcSuccess) << arcGetLastError(nullptr);
  EXPECT_EQ(arcMemRegister(inside + 10, 4), arcAlreadyExists);
  inside[0] = 7;
  comm(0).all_reduce(inside, inside, 1000);
  EXPECT_EQ(inside[0], 7);
  EXPECT_EQ(arcMemFree(inside), arcNotFound);
  EXPECT_EQ(arcMemDeregister(inside), arcSuccess);
  EXPECT_EQ(arcMemDeregister(inside), arcNotFound);
}

TEST_F(ClientLibrary, ReducesRegisteredMemoryWithoutStagingAndForgetsItWithItsOwner) {
  start();
  form(1);
  constexpr std::size_t kCount = 1 << 18;
  const SealedMapping mapping(kCount * sizeof(float));
  auto* values = static_cast<float*>(mapping.memory);
  const auto registered_bytes = [this] {
    return Metrics::scrape(*daemon_).value("arcomm_registered_bytes");
  };
  const double before = registered_bytes();
  {
    arc::Registration first(values, mapping.bytes);
    const arc::Registration owner(std::move(first));
    EXPECT_EQ(registered_bytes(), before + static_cast<double>(mapping.bytes));
    std::iota(values, values + kCount, 0.0F);
    comm(0).all_reduce(values, values, kCount, arcProd);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], static_cast<float>(i));
    EXPECT_EQ(registered_bytes(), before + static_cast<double>(mapping.bytes))
        << "it went through staging memory";
    try {
      const arc::Registration again(values, mapping.bytes);
      ADD_FAILURE() << "registered twice";
    } catch (const arc::Error& why) {
      EXPECT_EQ(why.code(), arcAlreadyExists) << why.what();
    }
  }
  EXPECT_EQ(registered_bytes(), before);
  EXPECT_EQ(arcMemDeregister(values), arcNotFound) << "its owner has left it registered";
  // The same memory, when nobody has registered it.
  comm(0).all_reduce(values, values, kCount);
  EXPECT_GT(registered_bytes(), before) << "staging memory does not show here";
}

}  // namespace
}  // namespace arcomm::support
