// What the host's device promises, in every shape that its options give it: as a Device, and its
// streams and events.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/device_kinds.h"
#include "transport/peer/host_shm.h"

namespace arcomm {
namespace {

using namespace std::chrono_literals;

class DeviceConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    ASSERT_TRUE(created.ok()) << created.error().to_string();
    device_ = *std::move(created);
  }
  Stream stream(std::string_view name = "test") {
    auto created = device_->create_stream(name);
    EXPECT_TRUE(created.ok());
    return *std::move(created);
  }
  Event event() {
    auto created = device_->create_event();
    EXPECT_TRUE(created.ok());
    return *std::move(created);
  }
  // Enqueues even where the queue is short: waits for room, at most ten seconds.
  template <typename Attempt>
  static void until_done(Attempt attempt) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (attempt() == Enqueue::Full) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the queue stayed full";
      std::this_thread::yield();
    }
  }
  static void enqueue(const Stream& stream, StreamTask task) {
    until_done([&] { return stream.enqueue(task); });
  }

  std::unique_ptr<HostDevice> device_;
};

// A task that holds its stream until let go.
struct Gate {
  std::atomic<bool> entered{false}, open{false};
  static void run(void* context) {
    auto& gate = *static_cast<Gate*>(context);
    gate.entered = true;
    while (!gate.open) std::this_thread::yield();
  }
  StreamTask task() { return {&Gate::run, this}; }
  void wait_entered() const {
    while (!entered) std::this_thread::yield();
  }
};

struct Counter {
  std::uint64_t value = 0;  // plain: the stream's order alone must make it safe
  static void run(void* context) { ++static_cast<Counter*>(context)->value; }
  StreamTask task() { return {&Counter::run, this}; }
};

TEST_P(DeviceConformance, SaysWhatItIs) {
  EXPECT_FALSE(device_->name().empty());
  EXPECT_GE(device_->ordinal(), 0);
}

TEST_P(DeviceConformance, RunsTasksInOrder) {
  struct Step {
    std::vector<int>* log;
    int number;
  };
  std::vector<int> log;
  std::vector<Step> steps;
  steps.reserve(5000);
  for (int i = 0; i < 5000; ++i) steps.push_back({&log, i});
  const Stream lane = stream();
  for (Step& step : steps) {
    enqueue(lane, {[](void* context) {
                     const auto* mine = static_cast<Step*>(context);
                     mine->log->push_back(mine->number);
                   },
                   &step});
  }
  ASSERT_TRUE(lane.synchronize(10s).ok());
  ASSERT_EQ(log.size(), steps.size());
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(log[static_cast<std::size_t>(i)], i);
}

TEST_P(DeviceConformance, QueryIsTrueOnlyAfterTheLastTask) {
  const Stream lane = stream();
  EXPECT_TRUE(lane.query());
  Gate gate;
  enqueue(lane, gate.task());
  gate.wait_entered();
  EXPECT_FALSE(lane.query());
  gate.open = true;
  ASSERT_TRUE(lane.synchronize(10s).ok());
  EXPECT_TRUE(lane.query());
}

TEST_P(DeviceConformance, SynchronizeGivesUpAtItsDeadline) {
  const Stream lane = stream();
  Gate gate;
  enqueue(lane, gate.task());
  const auto start = std::chrono::steady_clock::now();
  const Status status = lane.synchronize(30ms);
  const auto took = std::chrono::steady_clock::now() - start;
  gate.open = true;
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::DeadlineExceeded);
  EXPECT_GE(took, 30ms);
  EXPECT_LT(took, 2s);
  EXPECT_TRUE(lane.synchronize(10s).ok());
}

TEST_P(DeviceConformance, AFullQueueSaysSoAndLosesNothing) {
  const Stream lane = stream();
  Gate gate;
  Counter counter;
  enqueue(lane, gate.task());
  gate.wait_entered();
  std::uint64_t accepted = 0;
  while (accepted < 100'000 && lane.enqueue(counter.task()) == Enqueue::Done) ++accepted;
  ASSERT_GT(accepted, 0U);
  ASSERT_LT(accepted, 100'000U) << "the queue is bounded";
  gate.open = true;
  ASSERT_TRUE(lane.synchronize(10s).ok());
  EXPECT_EQ(counter.value, accepted);
  enqueue(lane, counter.task());
  ASSERT_TRUE(lane.synchronize(10s).ok());
  EXPECT_EQ(counter.value, accepted + 1);
}

TEST_P(DeviceConformance, WakesAStreamThatHasGoneToSleep) {
  const Stream lane = stream();
  Counter counter;
  for (std::uint64_t round = 1; round <= 30; ++round) {
    std::this_thread::sleep_for(2ms);
    enqueue(lane, counter.task());
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(lane.synchronize(10s).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 900ms) << "a wake-up was lost";
    EXPECT_EQ(counter.value, round);
  }
}

// The window between a stream's last look and its sleep, hit as often as it goes.
TEST_P(DeviceConformance, LosesNoTaskBetweenSpinningAndSleeping) {
  const Stream lane = stream();
  Counter counter;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3000; ++i) {
    enqueue(lane, counter.task());
    ASSERT_TRUE(lane.synchronize(10s).ok());
  }
  EXPECT_EQ(counter.value, 3000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
}

TEST_P(DeviceConformance, AnEventThatWasNeverRecordedIsReached) {
  const Event point = event();
  EXPECT_TRUE(point.query());
  EXPECT_TRUE(point.synchronize(0ns).ok());
}

TEST_P(DeviceConformance, AnEventIsReachedAfterWhatCameBeforeIt) {
  const Event point = event();
  const Stream lane = stream();
  Gate before, after;
  enqueue(lane, before.task());
  until_done([&] { return lane.record(point.ref()); });
  until_done([&] { return lane.enqueue(after.task()); });
  before.wait_entered();
  EXPECT_FALSE(point.query());
  const Status early = point.synchronize(20ms);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, ErrorCode::DeadlineExceeded);
  before.open = true;
  EXPECT_TRUE(point.synchronize(10s).ok()) << "although a later task still runs";
  EXPECT_TRUE(point.query());
  EXPECT_FALSE(lane.query());
  after.open = true;
  EXPECT_TRUE(lane.synchronize(10s).ok());
}

TEST_P(DeviceConformance, AnEventMayBeRecordedAgain) {
  const Event point = event();
  const Stream lane = stream();
  until_done([&] { return lane.record(point.ref()); });
  ASSERT_TRUE(point.synchronize(10s).ok());
  Gate gate;
  enqueue(lane, gate.task());
  until_done([&] { return lane.record(point.ref()); });
  EXPECT_FALSE(point.query());
  gate.open = true;
  EXPECT_TRUE(point.synchronize(10s).ok());
}

TEST_P(DeviceConformance, OneStreamWaitsForAnother) {
  const Event point = event();
  Counter shared;
  Gate gate;
  const Stream first = stream("first"), second = stream("second");
  enqueue(first, gate.task());
  enqueue(first, shared.task());
  until_done([&] { return first.record(point.ref()); });
  until_done([&] { return second.wait_for(point.ref()); });
  struct Seen {
    Counter* shared;
    std::uint64_t value = 0;
  } seen{&shared};
  enqueue(second, {[](void* context) {
                     auto* mine = static_cast<Seen*>(context);
                     mine->value = mine->shared->value;
                   },
                   &seen});
  EXPECT_FALSE(second.synchronize(20ms).ok());
  gate.open = true;
  ASSERT_TRUE(second.synchronize(10s).ok());
  EXPECT_EQ(seen.value, 1U);
}

TEST_P(DeviceConformance, DestroyingAStreamRunsWhatWasEnqueued) {
  Counter counter;
  {
    const Stream lane = stream();
    for (int i = 0; i < 3; ++i) enqueue(lane, counter.task());
  }
  EXPECT_EQ(counter.value, 3U);
}

TEST_P(DeviceConformance, CreatesAndDestroysManyStreams) {
  for (int i = 0; i < 200; ++i) {
    Counter counter;
    {
      const Stream lane = stream();
      if (i % 2 == 0) enqueue(lane, counter.task());
    }
    ASSERT_EQ(counter.value, i % 2 == 0 ? 1U : 0U);
  }
}

TEST_P(DeviceConformance, AllocatesZeroedMemoryInWholePages) {
  auto memory = device_->allocate(10'000);
  ASSERT_TRUE(memory.ok()) << memory.error().to_string();
  EXPECT_GE(memory->bytes(), 10'000U);
  EXPECT_EQ(memory->bytes() % 4096, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 4096, 0U);
  if (device_->kind() != DeviceKind::Host) return;  // not the CPU's to read
  for (std::uint64_t i = 0; i < memory->bytes(); ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
}

TEST_P(DeviceConformance, RefusesImpossibleAllocations) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    const auto memory = device_->allocate(bytes);
    ASSERT_FALSE(memory.ok()) << bytes;
    EXPECT_NE(memory.error().message.find("bytes"), std::string::npos);
  }
}

TEST_P(DeviceConformance, ExportedMemoryIsTheSameMemory) {
  if (device_->kind() != DeviceKind::Host) GTEST_SKIP() << "mapped by its own kind of peer";
  auto memory = device_->allocate(8192);
  ASSERT_TRUE(memory.ok());
  auto fd = memory->export_fd();
  ASSERT_TRUE(fd.ok());
  auto peer = PeerMapping::map(fd->get(), 0, memory->bytes());
  ASSERT_TRUE(peer.ok()) << peer.error().to_string();
  std::memset(memory->data(), 0x5a, 8192);
  EXPECT_EQ(peer->data()[8191], std::byte{0x5a});
  *memory = Memory();  // the owner goes; whoever mapped it reads on
  EXPECT_EQ(peer->data()[0], std::byte{0x5a});
}

TEST_P(DeviceConformance, ExportedMemoryCannotBeResized) {
  if (device_->kind() != DeviceKind::Host) GTEST_SKIP() << "sealing is the host's";
  auto memory = device_->allocate(8192);
  ASSERT_TRUE(memory.ok());
  auto fd = memory->export_fd();
  ASSERT_TRUE(fd.ok());
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  EXPECT_NE(::ftruncate(fd->get(), 1 << 20), 0);
  EXPECT_NE(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance, testing::ValuesIn(all_device_kinds()),
                         [](const testing::TestParamInfo<DeviceUnderTest>& tested) {
                           return tested.param.name;
                         });

}  // namespace
}  // namespace arcomm
