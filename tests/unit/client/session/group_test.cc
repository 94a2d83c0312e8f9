#include "client/src/session/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace arcomm::client {
namespace {

TEST(Group, RefusesAnEndWithoutAStart) {
  Group group;
  const Status status = group.end();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::FailedPrecondition);
}

TEST(Group, RunsNothingBeforeTheOutermostEnd) {
  Group group;
  int ran = 0;
  group.start();
  group.start();
  group.create([&ran]() -> Status {
    ++ran;
    return {};
  });
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(group.open());
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(group.open());
}

TEST(Group, CreatesAllCommunicatorsAtTheSameTime) {
  Group group;
  std::latch all(8);
  group.start();
  for (int i = 0; i < 8; ++i) {
    group.create([&all]() -> Status {
      all.arrive_and_wait();  // ends only if all eight are inside
      return {};
    });
  }
  EXPECT_TRUE(group.end().ok());
}

TEST(Group, ReturnsTheFirstFailureAndIsEmptyAfterwards) {
  Group group;
  group.start();
  group.create([]() -> Status { return {}; });
  group.create([]() -> Status { return error(ErrorCode::NotFound, Reason::None, "second"); });
  group.destroy([]() -> Status { return error(ErrorCode::Internal, Reason::None, "third"); });
  const Status status = group.end();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "second");
  group.start();
  EXPECT_TRUE(group.end().ok());
}

TEST(Group, BelongsToItsThread) {
  Group::of_this_thread().start();
  std::thread([] { EXPECT_FALSE(Group::of_this_thread().open()); }).join();
  EXPECT_TRUE(Group::of_this_thread().open());
  EXPECT_TRUE(Group::of_this_thread().end().ok());
}

}  // namespace
}  // namespace arcomm::client
