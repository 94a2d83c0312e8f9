// What a rank notes of each call for the daemon to read: proto/gpu/call_note.h.
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/client/gpu/gpu_in_stream_fixture.h"

namespace arcomm::client {
namespace {

// By which the daemon tells that ranks have called different operations on different paths.
class GpuCallNotesTest : public GpuInStreamTest {
 protected:
  static constexpr std::uint64_t kSmall = 16, kResident = kMostInStream / 4 + 1,
                                 kLarge = kMostResident / 4 + 1;
  std::optional<NotedCall> noted(LaunchPath path, std::uint32_t number) {
    const auto* const pages =
        reinterpret_cast<const HostPages*>(gpu->in_stream_starts[0].call.doorbells);
    return read_note(pages->called[static_cast<int>(path)][number % kCallNotes], number);
  }
  void expect_noted(LaunchPath path, std::uint32_t number, std::uint32_t call,
                    std::uint64_t count) {
    const std::optional<NotedCall> found = noted(path, number);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->call, call);
    EXPECT_EQ(found->spec, all_reduce_of(count));
  }
  void launch(std::uint64_t count) { ASSERT_TRUE(GpuMemberTest::all_reduce(count).ok()); }
};

TEST_F(GpuCallNotesTest, NumberOperationsByTheirPathAndOverAllPaths) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  launch(kLarge);
  launch(kResident);
  ASSERT_TRUE(all_reduce(0).ok());
  expect_noted(LaunchPath::InStream, 1, 1, kSmall);
  expect_noted(LaunchPath::Launched, 1, 2, kLarge);
  expect_noted(LaunchPath::Resident, 1, 3, kResident);
  expect_noted(LaunchPath::InStream, 2, 4, 0);
  EXPECT_FALSE(noted(LaunchPath::InStream, 3));
}

TEST_F(GpuCallNotesTest, TheLastOnesAreKept) {
  for (std::uint32_t i = 0; i < kCallNotes + 1; ++i) ASSERT_TRUE(all_reduce(kSmall).ok());
  EXPECT_FALSE(noted(LaunchPath::InStream, 1));
  expect_noted(LaunchPath::InStream, 2, 2, kSmall);
  expect_noted(LaunchPath::InStream, kCallNotes + 1, kCallNotes + 1, kSmall);
}

TEST_F(GpuCallNotesTest, ACallThatFailsTakesNoNumber) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  refusals.push_back(error(ErrorCode::InvalidArgument, Reason::BadValue, "no"));
  EXPECT_FALSE(GpuMemberTest::all_reduce(kLarge).ok());
  launch(kLarge);
  expect_noted(LaunchPath::Launched, 1, 2, kLarge);
}

// How often a graph is replayed, and when, nobody sees here.
TEST_F(GpuCallNotesTest, NothingIsSaidAnyMoreOnceAGraphHasCalls) {
  ASSERT_TRUE(all_reduce(kSmall).ok());
  ASSERT_TRUE(noted(LaunchPath::InStream, 1));
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(kSmall).ok());
  gpu->capturing = false;
  EXPECT_FALSE(noted(LaunchPath::InStream, 1));
  launch(kLarge);
  ASSERT_TRUE(all_reduce(kSmall).ok());
  EXPECT_FALSE(noted(LaunchPath::Launched, 1));
  EXPECT_FALSE(noted(LaunchPath::InStream, 2));
}

}  // namespace
}  // namespace arcomm::client
