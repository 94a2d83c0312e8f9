#include "client/src/host/memory/interval_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace arcomm::client {
namespace {

std::shared_ptr<int> number(int value) {
  return std::make_shared<int>(value);
}

TEST(IntervalMap, FindsARangeThatLiesWithin) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(1000, 100, number(1)));
  ASSERT_NE(map.find(1000, 100), nullptr);
  EXPECT_EQ(*map.find(1050, 50), 1);
  EXPECT_EQ(*map.find(1099, 1), 1);
}

TEST(IntervalMap, FindsNothingThatReachesOutside) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(1000, 100, number(1)));
  EXPECT_EQ(map.find(999, 2), nullptr);
  EXPECT_EQ(map.find(1099, 2), nullptr);
  EXPECT_EQ(map.find(1100, 1), nullptr);
  EXPECT_EQ(map.find(1050, UINTPTR_MAX), nullptr);
}

TEST(IntervalMap, RefusesARangeThatMeetsAnother) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(1000, 100, number(1)));
  EXPECT_FALSE(map.insert(1099, 1, number(2)));
  EXPECT_FALSE(map.insert(900, 101, number(2)));
  EXPECT_FALSE(map.insert(900, 1000, number(2)));
  EXPECT_TRUE(map.insert(1100, 1, number(2)));
  EXPECT_TRUE(map.insert(900, 100, number(3)));
  EXPECT_EQ(*map.find(999, 1), 3);
}

TEST(IntervalMap, ForgetsOnlyWhatStartsThere) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(1000, 100, number(1)));
  EXPECT_FALSE(map.erase(1001));
  EXPECT_EQ(map.starting_at(1001), nullptr);
  ASSERT_NE(map.starting_at(1000), nullptr);
  EXPECT_TRUE(map.erase(1000));
  EXPECT_EQ(map.find(1000, 1), nullptr);
}

TEST(IntervalMap, IsReadWhileItIsWritten) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(0x1000, 0x1000, number(7)));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uintptr_t i = 0; !stop.load(); ++i) {
      const std::uintptr_t at = 0x10000 + (i % 16) * 0x1000;
      if (!map.insert(at, 0x1000, number(1))) map.erase(at);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const std::shared_ptr<int> found = map.find(0x1800, 16);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(*found, 7);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace arcomm::client
