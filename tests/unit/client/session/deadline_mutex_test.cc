#include "client/src/session/deadline_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;
using Held = std::unique_lock<DeadlineMutex>;

TEST(DeadlineMutex, IsHeldByOneThreadAtATimeHoweverTheyWait) {
  DeadlineMutex mutex;
  constexpr int kThreads = 4, kRounds = 100'000;
  int counted = 0;  // not atomic: ThreadSanitizer sees a second holder, too
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kRounds; ++i) {
        Held lock(mutex, std::defer_lock);
        if ((thread + i) % 2 == 0) {
          lock.lock();
        } else {
          while (!lock.try_lock_until(DeadlineMutex::Clock::now() + milliseconds(1))) {
          }
        }
        ++counted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted, kThreads * kRounds);
}

TEST(DeadlineMutex, AWaitEndsAtItsDeadlineAndIsNoObstacleToTheNext) {
  DeadlineMutex mutex;
  Held held(mutex);
  const auto begin = DeadlineMutex::Clock::now();
  std::thread([&] {
    EXPECT_FALSE(Held(mutex, begin + milliseconds(20)).owns_lock());
    EXPECT_FALSE(Held(mutex, begin).owns_lock()) << "its time is over";
  }).join();
  EXPECT_GE(DeadlineMutex::Clock::now(), begin + milliseconds(20));
  held.unlock();
  EXPECT_TRUE(Held(mutex, begin).owns_lock()) << "free, so that nobody needs to wait";
  EXPECT_TRUE(Held(mutex, std::try_to_lock).owns_lock());
}

// Those who sleep are woken one by one: each by whoever had it before.
TEST(DeadlineMutex, WhoeverLetsGoWakesTheNextOfManySleepers) {
  DeadlineMutex mutex;
  Held held(mutex);
  constexpr int kThreads = 8;
  std::atomic<int> had{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      const Held lock(mutex, DeadlineMutex::Clock::now() + milliseconds(30'000));
      had += lock.owns_lock() ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(milliseconds(30));  // most of them sleep by then
  const auto begin = DeadlineMutex::Clock::now();
  held.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(had, kThreads);
  EXPECT_LT(DeadlineMutex::Clock::now() - begin, milliseconds(15'000))
      << "somebody slept until the deadline";
}

// Of a thread that lets go only to take it again nobody else would get it but by chance.
TEST(DeadlineMutex, WhoeverWaitsHasItAfterAFewTurnsOfOneThatComesAgainAtOnce) {
  DeadlineMutex mutex;
  constexpr int kTimes = 10;
  std::atomic<bool> over{false};
  std::atomic<int> turns{0};
  std::thread again_at_once([&] {
    while (!over) {
      const Held lock(mutex);
      ++turns;
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  int had = 0;
  const int before = turns;
  for (int i = 0; i < kTimes; ++i) {
    const Held lock(mutex, DeadlineMutex::Clock::now() + milliseconds(30'000));
    had += lock.owns_lock() ? 1 : 0;
  }
  const int passed = turns - before;
  over = true;
  again_at_once.join();
  EXPECT_EQ(had, kTimes);
  EXPECT_LT(passed, kTimes * 100) << "turns of the other thread";
}

}  // namespace
}  // namespace arcomm::client
