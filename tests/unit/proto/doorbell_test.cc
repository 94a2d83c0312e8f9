#include "proto/ring/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "proto/ring/consumer.h"
#include "proto/ring/producer.h"

namespace arcomm::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(FutexDoorbell, CostsNoSystemCallWhileNobodySleeps) {
  std::atomic<std::uint32_t> flag{0};
  FutexDoorbell bell(flag);
  EXPECT_FALSE(bell.ring());
  bell.arm();
  EXPECT_TRUE(bell.ring());
  EXPECT_FALSE(bell.ring());  // one sleeper, one wake-up
}

TEST(FutexDoorbell, DoesNotSleepWhenItWasRungSinceItWasArmed) {
  std::atomic<std::uint32_t> flag{0};
  FutexDoorbell bell(flag);
  bell.arm();
  bell.ring();
  const auto before = steady_clock::now();
  bell.sleep(std::chrono::seconds(10));
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(5));
}

TEST(FutexDoorbell, SleepsNoLongerThanItsTimeout) {
  std::atomic<std::uint32_t> flag{0};
  FutexDoorbell bell(flag);
  bell.arm();
  const auto before = steady_clock::now();
  bell.sleep(milliseconds(20));
  EXPECT_GE(steady_clock::now() - before, milliseconds(10));
  bell.sleep(milliseconds(0));
  bell.sleep(milliseconds(-5));  // a deadline that has passed
}

TEST(FutexDoorbell, RingAllWakesASleeperThatRangForNothing) {
  std::atomic<std::uint32_t> flag{0};
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    FutexDoorbell bell(flag);
    bell.arm();
    bell.sleep(std::chrono::seconds(30));
    awake = true;
  });
  FutexDoorbell bell(flag);
  while (flag.load() == 0) std::this_thread::yield();
  bell.ring_all();
  sleeper.join();
  EXPECT_TRUE(awake.load());
}

TEST(EventDoorbell, IsReadableAfterARingAndQuietAfterDraining) {
  Result<UniqueFd> event = EventDoorbell::create();
  ASSERT_TRUE(event.ok());
  std::atomic<std::uint32_t> flag{0};
  EventDoorbell bell(flag, event->get());
  pollfd watch{event->get(), POLLIN, 0};
  EXPECT_FALSE(bell.ring());
  EXPECT_EQ(::poll(&watch, 1, 0), 0);
  bell.arm();
  EXPECT_TRUE(bell.ring());
  EXPECT_EQ(::poll(&watch, 1, 0), 1);
  bell.drain();
  EXPECT_EQ(::poll(&watch, 1, 0), 0);
  bell.drain();  // nothing there: does not block
}

// The race that the two fences close: the producer publishes between the consumer's last look and
// its sleep. A lost wake-up shows as a sleep that runs into its timeout.
template <typename Sleep, typename Ring>
void hand_over(std::atomic<std::uint32_t>& flag, Sleep sleep, Ring ring_bell) {
  constexpr std::uint64_t kRounds = 20'000;
  auto consumer_lines = std::make_unique<ConsumerLines>();
  std::vector<Completion> slots(8);
  for (std::uint64_t i = 0; i < 8; ++i) slots[i].stamp = stamp_before(i);
  const RingView<Completion> view{consumer_lines.get(), slots.data(), 8};
  std::atomic<std::uint64_t> taken{0};
  std::thread writer([&] {
    Producer<Completion> producer(view);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      while (taken.load(std::memory_order_acquire) != i) std::this_thread::yield();
      ASSERT_EQ(producer.push(Completion{}), Push::Done);
      ring_bell();
    }
  });
  Consumer<Completion> consumer(view);
  Completion out;
  std::uint64_t lost = 0;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    while (consumer.peek() == Pop::Empty) {
      FutexDoorbell speculating(flag);  // both doorbells arm alike
      speculating.arm();
      if (consumer.peek() == Pop::Empty && !sleep()) {
        lost += consumer.peek() == Pop::Done ? 1 : 0;
      }
      speculating.disarm();
    }
    ASSERT_EQ(consumer.pop(out), Pop::Done);
    taken.store(i + 1, std::memory_order_release);
  }
  writer.join();
  EXPECT_EQ(lost, 0u);
}

// Not by its timeout.
bool is_woken(std::atomic<std::uint32_t>& flag) {
  const auto before = steady_clock::now();
  FutexDoorbell(flag).sleep(std::chrono::seconds(2));
  return steady_clock::now() - before < std::chrono::seconds(2);
}

TEST(FutexDoorbell, NeverLosesAWakeUp) {
  std::atomic<std::uint32_t> flag{0};
  hand_over(
      flag, [&flag] { return is_woken(flag); }, [&flag] { FutexDoorbell(flag).ring(); });
}

TEST(FutexDoorbell, NeverLosesAWakeUpBehindAFenceForManyRings) {
  std::atomic<std::uint32_t> flag{0}, nobody{0};
  hand_over(
      flag, [&flag] { return is_woken(flag); },
      [&flag, &nobody] {
        order_published();
        EXPECT_FALSE(FutexDoorbell(nobody).ring_in_order());
        FutexDoorbell(flag).ring_in_order();
      });
}

TEST(EventDoorbell, NeverLosesAWakeUp) {
  Result<UniqueFd> event = EventDoorbell::create();
  ASSERT_TRUE(event.ok());
  const int fd = event->get();
  std::atomic<std::uint32_t> flag{0};
  hand_over(
      flag,
      [&flag, fd] {
        pollfd watch{fd, POLLIN, 0};
        const int woken = ::poll(&watch, 1, 2000);
        EventDoorbell(flag, fd).drain();
        return woken == 1;
      },
      [&flag, fd] { EventDoorbell(flag, fd).ring(); });
}

}  // namespace
}  // namespace arcomm::ring
