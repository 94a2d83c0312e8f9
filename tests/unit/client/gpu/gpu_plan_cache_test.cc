#include "client/src/gpu/gpu_plan_cache.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

GpuPlan plan(std::uint32_t index) {
  return {.key = {.send = 0x1000, .recv = 0x2000, .spec = all_reduce_of(index)}, .id = {index, 1}};
}

TEST(GpuPlanCache, TellsPlansApartByEverythingThatWasAsked) {
  GpuPlanCache cache;
  const GpuPlanKey key{.send = 1, .recv = 2, .spec = all_reduce_of(3), .send_buffer = {1, 1}};
  cache.insert({.key = key, .id = {7, 1}});
  EXPECT_NE(cache.find(key), nullptr);
  GpuPlanKey other = key;
  other.recv = 4;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.spec.dtype = DType::Float16;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.spec.op = ReduceOp::Max;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.spec.recv_count = 6;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.spec.root = 0;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.send_buffer = {1, 2};  // the same address, other memory
  EXPECT_EQ(cache.find(other), nullptr);
}

TEST(GpuPlanCache, OffersTheLeastRecentlyUsedFirst) {
  GpuPlanCache cache;
  for (std::uint32_t i = 1; i <= 3; ++i) cache.insert(plan(i));
  cache.find(plan(1).key);
  const std::vector<GpuPlan*> oldest = cache.oldest(2);
  ASSERT_EQ(oldest.size(), 2u);
  EXPECT_EQ(oldest[0]->id.index, 2u);
  EXPECT_EQ(oldest[1]->id.index, 3u);
}

TEST(GpuPlanCache, NeverOffersWhatAGraphOrACallerHolds) {
  GpuPlanCache cache;
  cache.insert(plan(1)).is_captured = true;
  cache.insert(plan(2)).holders = 1;
  cache.insert(plan(3));
  const std::vector<GpuPlan*> oldest = cache.oldest(10);
  ASSERT_EQ(oldest.size(), 1u);
  EXPECT_EQ(oldest[0]->id.index, 3u);
}

TEST(GpuPlanCache, FindsTheUsersOfABufferOnEitherSide) {
  GpuPlanCache cache;
  cache.insert({.key = {.spec = all_reduce_of(1), .send_buffer = {5, 1}}});
  cache.insert({.key = {.spec = all_reduce_of(2), .recv_buffer = {5, 1}}});
  cache.insert({.key = {.spec = all_reduce_of(3), .recv_buffer = {6, 1}}});
  EXPECT_EQ(cache.users_of({5, 1}).size(), 2u);
  cache.erase(*cache.users_of({5, 1})[0]);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(GpuPlanCache, KnowsWhenEveryStartOfAPlanHasEnded) {
  const std::uint64_t done = to_word(Done{.number = 9});
  EXPECT_TRUE(has_ended({.posted = 2, .number = 9}, 2, done));
  EXPECT_FALSE(has_ended({.posted = 2, .number = 10}, 2, done)) << "the path is not that far";
  EXPECT_FALSE(has_ended({.posted = 1, .number = 9}, 2, done)) << "a start is still in a stream";
  EXPECT_TRUE(has_ended({.posted = 5, .number = 0xffffffff}, 5, to_word(Done{.number = 1})));
}

}  // namespace
}  // namespace arcomm::client
