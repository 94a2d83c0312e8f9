#include "proto/gpu/call_note.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace arcomm {
namespace {

TEST(CallNote, IsReadUnderItsNumberAlone) {
  CallNote place;
  EXPECT_FALSE(read_note(place, 0));
  write_note(place, 7, {.call = 9, .spec = all_reduce_of(100, DType::BFloat16, ReduceOp::Max)});
  EXPECT_FALSE(read_note(place, 6));
  const std::optional<NotedCall> noted = read_note(place, 7);
  ASSERT_TRUE(noted);
  EXPECT_EQ(noted->call, 9u);
  EXPECT_EQ(noted->spec, all_reduce_of(100, DType::BFloat16, ReduceOp::Max));
}

TEST(CallNote, OfNoKnownCallOrOfNonsenseSaysNothing) {
  CallNote place;
  write_note(place, 7, {.call = 0, .spec = all_reduce_of(100)});
  EXPECT_FALSE(read_note(place, 7));
  write_note(place, 7, {.call = 1, .spec = {.op = static_cast<ReduceOp>(99)}});
  EXPECT_FALSE(read_note(place, 7));
  write_note(place, 7, {.call = 1, .spec = {.send_count = 3, .recv_count = 4}});
  EXPECT_FALSE(read_note(place, 7));
}

TEST(CallNote, IsNeverReadHalfWritten) {
  CallNote place;
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (std::uint32_t number = 1; number < 200'000; ++number)
      write_note(place, number, {.call = number, .spec = all_reduce_of(number)});
    ends = true;
  });
  while (!ends) {
    const std::uint32_t number = __atomic_load_n(&place.number, __ATOMIC_RELAXED);
    const std::optional<NotedCall> noted = read_note(place, number);
    if (!noted) continue;
    EXPECT_EQ(noted->call, number);
    EXPECT_EQ(noted->spec.send_count, number);
  }
  writer.join();
}

}  // namespace
}  // namespace arcomm
