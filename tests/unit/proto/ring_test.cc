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
  explicit TestRing(std::uint32_t count) : slots(count) {}
  RingView<WorkRequest> view() {
    return {indices.get(), slots.data(), static_cast<std::uint32_t>(slots.size())};
  }
  std::unique_ptr<Indices> indices = std::make_unique<Indices>();
  std::vector<WorkRequest> slots;
};

WorkRequest numbered(std::uint64_t ticket) {
  WorkRequest request;
  request.ticket = ticket;
  request.count = ticket * 3;
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
    EXPECT_EQ(out.slot_seq, i);
  }
  EXPECT_EQ(consumer.pop(out), Pop::Empty);
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

TEST(Ring, ConsumerSeesATailThatJumpedAhead) {
  TestRing ring(8);
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  ring.indices->tail.store(9);
  EXPECT_EQ(consumer.peek(), Pop::Corrupt);
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
  ring.indices->tail.store(~std::uint64_t{0});
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
}

TEST(Ring, ConsumerSeesATailThatWentBack) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(producer.push(numbered(1)), Push::Done);
    ASSERT_EQ(consumer.pop(out), Pop::Done);
  }
  ring.indices->tail.store(2);
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
}

TEST(Ring, ConsumerSeesASlotThatDoesNotCarryItsPosition) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  Consumer<WorkRequest> consumer(ring.view());
  WorkRequest out;
  ASSERT_EQ(producer.push(numbered(1)), Push::Done);
  ring.slots[0].slot_seq = 0;  // a hole punched into the memory reads as zeros
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
  EXPECT_EQ(consumer.position(), 0u);
  ring.slots[0].slot_seq = 9;  // left from, or ahead by, one turn of the ring
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
}

TEST(Ring, ProducerSeesAHeadThatRanPastItsTail) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  for (int i = 0; i < 8; ++i) ASSERT_EQ(producer.push(numbered(1)), Push::Done);
  ring.indices->head.store(9);
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
  ring.indices->head.store(0);
  EXPECT_EQ(producer.refresh(), Push::Corrupt);
}

TEST(Ring, AnIndexCorruptedByTheOtherSideNeverMovesOwnMemoryOutOfTheRing) {
  TestRing ring(8);
  Producer<WorkRequest> producer(ring.view());
  // The producer's own index in shared memory is only told: a liar there changes nothing here.
  ring.indices->tail.store(12345);
  ASSERT_EQ(producer.push(numbered(7)), Push::Done);
  EXPECT_EQ(producer.position(), 1u);
  EXPECT_EQ(ring.indices->tail.load(), 1u);
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
    wrong += out.ticket != i || out.count != i * 3 ? 1 : 0;
    ++i;
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace arcomm::ring
