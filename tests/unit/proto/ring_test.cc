#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "proto/ring/consumer.h"
#include "proto/ring/layout.h"
#include "proto/ring/producer.h"

namespace arcomm::ring {
namespace {

// A ring in ordinary memory: producer and consumer share one mapping, so that the thread sanitizer
// sees both.
struct TestRing {
  explicit TestRing(std::uint32_t count) : slots(count) {
    for (std::uint64_t i = 0; i < count; ++i) slots[i].stamp = stamp_before(i);
  }
  RingView<WorkRequest> view() {
    return {consumer.get(), slots.data(), static_cast<std::uint32_t>(slots.size())};
  }
  std::unique_ptr<ConsumerLines> consumer = std::make_unique<ConsumerLines>();
  std::vector<WorkRequest> slots;
};

WorkRequest numbered(std::uint64_t ticket) {
  WorkRequest request;
  request.ticket = ticket;
  request.send_count = ticket * 3;
  return request;
}

TEST(Ring, HandsOverInOrderAndThenIsEmpty) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  EXPECT_EQ(consumer.peek(), Pop::Empty);
  EXPECT_EQ(consumer.pop(out), Pop::Empty);
  for (std::uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(producer.push(numbered(i)), Push::Done);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(consumer.peek(), Pop::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
    EXPECT_EQ(out.ticket, i);
    EXPECT_EQ(out.stamp, stamp_of(i - 1, 8));
  }
  EXPECT_EQ(consumer.pop(out), Pop::Empty);
}

TEST(Ring, FetchingAheadTakesNothing) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  consumer.fetch_ahead();
  EXPECT_EQ(consumer.peek(), Pop::Empty);
  EXPECT_EQ(producer.push(numbered(7)), Push::Done);
  consumer.fetch_ahead();
  EXPECT_EQ(consumer.position(), 0u);
  WorkRequest out;
  ASSERT_EQ(consumer.pop(out), Pop::Done);
  EXPECT_EQ(out.ticket, 7u);
}

TEST(Ring, IsFullAtItsSlotsAndGoesOnWhenOneIsRead) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(producer.push(numbered(i)), Push::Done);
  EXPECT_EQ(producer.known_free(), 0u);
  EXPECT_EQ(producer.push(numbered(8)), Push::Full);
  EXPECT_EQ(producer.refresh(), Push::Full);
  WorkRequest out;
  ASSERT_EQ(consumer.pop(out), Pop::Done);
  EXPECT_EQ(producer.refresh(), Push::Done);
  EXPECT_EQ(producer.known_free(), 1u);
  EXPECT_EQ(producer.push(numbered(8)), Push::Done);
}

TEST(Ring, WrapsAroundManyTimes) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(producer.push(numbered(i)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
    ASSERT_EQ(out.ticket, i);
  }
  EXPECT_EQ(producer.position(), 1000u);
  EXPECT_EQ(consumer.position(), 1000u);
}

// Positions have 64 bits: nothing of them may be kept in 32.
TEST(Ring, GoesOnPastTwoToTheThirtySecondMessage) {
  constexpr std::uint64_t kBegin = (std::uint64_t{1} << 32) - 21;
  TestRing ring(8);
  for (std::uint64_t i = kBegin; i < kBegin + 8; ++i) ring.slots[i % 8].stamp = stamp_before(i);
  ring.consumer->head.store(kBegin);
  Producer<WorkRequest> producer(ring.view(), kBegin);
  Consumer<WorkRequest> consumer(ring.view(), kBegin);
  WorkRequest out;
  std::uint64_t next = 0, seen = 0;
  for (int turn = 0; turn < 12; ++turn) {
    for (int i = 0; i < 5 + turn % 4; ++i) {
      ASSERT_NE(producer.known_free(), 0u);
      ASSERT_EQ(producer.push(numbered(next++)), Push::Done);
    }
    if (turn % 4 == 3) {
      EXPECT_EQ(producer.push(numbered(0)), Push::Full);
    }
    while (seen != next) {
      ASSERT_EQ(consumer.pop(out), Pop::Done);
      ASSERT_EQ(out.ticket, seen++);
    }
    ASSERT_EQ(consumer.pop(out), Pop::Empty) << "what a turn before left there is no message";
    ASSERT_EQ(producer.refresh(), Push::Done);
  }
  EXPECT_GT(producer.position(), std::uint64_t{1} << 32);
  EXPECT_EQ(consumer.position(), producer.position());
}

TEST(Ring, ConsumerSeesAStampThatJumpedAhead) {
  TestRing ring(8);
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (const std::uint64_t stamp : {stamp_of(1, 8), stamp_of(8, 8), ~std::uint64_t{0}}) {
    ring.slots[0].stamp = stamp;
    EXPECT_EQ(consumer.peek(), Pop::Corrupt) << stamp;
    EXPECT_EQ(consumer.pop(out), Pop::Corrupt) << stamp;
    EXPECT_EQ(consumer.position(), 0u);
  }
}

TEST(Ring, ConsumerSeesAStampThatWentBack) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (int i = 0; i < 19; ++i) {
    ASSERT_EQ(producer.push(numbered(1)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
  }
  EXPECT_EQ(ring.slots[3].stamp,
            stamp_of(11, 8));  // what a turn of the ring left there reads as empty
  EXPECT_EQ(consumer.peek(), Pop::Empty);
  for (const std::uint64_t stamp : {stamp_of(3, 8), stamp_of(18, 8)}) {
    ring.slots[3].stamp = stamp;  // two turns ago, and the slot before
    EXPECT_EQ(consumer.pop(out), Pop::Corrupt) << stamp;
  }
  EXPECT_EQ(consumer.position(), 19u);
}

TEST(Ring, ConsumerSeesAHolePunchedIntoASlot) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (std::size_t i = 0; i < 20; ++i) {
    ring.slots[i % 8] = WorkRequest{};  // reads as zeros, in the first turn as in any other
    EXPECT_EQ(consumer.pop(out), Pop::Corrupt) << i;
    ASSERT_EQ(producer.push(numbered(1)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
  }
}

TEST(Ring, AMessageOfOneLineLeavesNothingOfTheSlotsLastTurn) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(producer.push(numbered(5)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
    EXPECT_EQ(out.send_count, 15u);
  }
  WorkRequest start = numbered(6);
  start.plan = PlanId{1, 1}.bits();
  start.plan = 77;
  ASSERT_EQ(producer.push(start), Push::Done);
  ASSERT_EQ(consumer.pop(out), Pop::Done);
  EXPECT_EQ(out.plan, 77u);
  EXPECT_EQ(out.ticket, 6u);
  EXPECT_EQ(out.send_count, 0u);
}

TEST(Ring, ProducerSeesAHeadThatRanPastItsTail) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  for (int i = 0; i < 8; ++i) ASSERT_EQ(producer.push(numbered(1)), Push::Done);
  ring.consumer->head.store(9);
  EXPECT_EQ(producer.refresh(), Push::Corrupt);
  EXPECT_EQ(producer.push(numbered(1)), Push::Corrupt);
}

TEST(Ring, ProducerSeesAHeadThatFellBehindTheRing) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (int i = 0; i < 12; ++i) {
    ASSERT_EQ(producer.push(numbered(1)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
  }
  ring.consumer->head.store(0);
  EXPECT_EQ(producer.refresh(), Push::Corrupt);
}

TEST(Ring, WhatTheOtherSideWritesNeverMovesOwnPositionOutOfTheRing) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  ring.slots[0].stamp = 12345;  // the producer never reads a stamp
  ASSERT_EQ(producer.push(numbered(7)), Push::Done);
  EXPECT_EQ(producer.position(), 1u);
  EXPECT_EQ(ring.slots[0].stamp, stamp_of(0, 8));
}

TEST(Ring, TwoThreadsOnOneMappingPassEverySlotUntorn) {
  TestRing ring(16);
  constexpr std::uint64_t kSlots = 200'000;
  std::thread writer([&ring] {
    Producer<WorkRequest> producer(ring.view());
    for (std::uint64_t i = 0; i < kSlots;) {
      if (producer.push(numbered(i)) == Push::Done) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kSlots;) {
    const Pop popped = consumer.pop(out);
    ASSERT_NE(popped, Pop::Corrupt);
    if (popped == Pop::Empty) {
      std::this_thread::yield();
      continue;
    }
    wrong += out.ticket != i || out.send_count != i * 3 ? 1 : 0;
    ++i;
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace arcomm::ring
