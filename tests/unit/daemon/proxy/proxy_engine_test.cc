// One FIFO at a time, with the test as its kernel: phases, credits, deadlines, aborts, and what a
// kernel that writes nonsense gets.
#include "daemon/proxy/proxy_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "daemon/proxy/fifo/fifo_words.h"
#include "tests/support/sessions/memory_link.h"

namespace arcomm::proxy {
namespace {

constexpr std::uint32_t kMost = 64;

class ProxyEngineTest : public testing::Test, public ProxyEvents {
 protected:
  void group_failed(std::uint64_t group, const Error& why) override {
    failed_.push_back(group);
    why_ = why;
  }

  struct Fifo {
    DeviceFifo words;
    std::vector<std::byte> slots = std::vector<std::byte>(kFifoSteps * kMost);
    std::shared_ptr<FifoOrders> orders = std::make_shared<FifoOrders>();
    FifoId id = 0;
  };
  void add(Fifo& fifo, FifoDirection direction, std::uint64_t group = 1, std::uint32_t lane = 0) {
    const auto added =
        engine_.add({.direction = direction,
                     .fifo = &fifo.words,
                     .memory = {.mode = SlotMode::Normal, .most_bytes = kMost, .slots = fifo.slots},
                     .wire = &link_.end(direction == FifoDirection::Send ? 0 : 1),
                     .lane = lane,
                     .peer = 3,
                     .peer_name = "node-d",
                     .group = group,
                     .orders = fifo.orders});
    ASSERT_TRUE(added) << added.error().to_string();
    fifo.id = *added;
  }
  // More steps than a test takes.
  static void order(Fifo& fifo) { ASSERT_TRUE(fifo.orders->begin(1000, FifoOrders::kNever)); }
  void publish(Fifo& fifo, std::uint64_t step, std::uint32_t bytes = 10) {
    FifoEntry& entry = fifo.words.slots[slot_of(step)].of_kernel;
    entry.sequence = step + 1;
    entry.offset = slot_of(step) * kMost;
    entry.mode = SlotMode::Normal;
    fifo.words.filled = step + 1;
    store_release(entry.size_word, to_word(SizeWord{.step = step, .bytes = bytes}));
  }
  void settle(std::uint64_t now_ns = 1) {
    for (int i = 0; i < 100; ++i) engine_.progress(now_ns);
  }
  static Done aborted(Fifo& fifo) { return done_from(fifo.words.aborted); }

  MemoryLink link_{{.is_eager = true, .most_sent = 4, .hesitates = nullptr}};
  ProxyEngine engine_{*this};
  std::vector<std::uint64_t> failed_;
  Error why_;
};

TEST_F(ProxyEngineTest, AChunkGoesFromOneFifoToTheOtherAndCreditsComeBack) {
  Fifo send, receive;
  add(send, FifoDirection::Send);
  add(receive, FifoDirection::Receive);
  order(send);
  order(receive);
  EXPECT_EQ(send.words.granted, kFifoSteps);
  for (std::uint64_t step = 0; step < 20; ++step) {
    ASSERT_GT(send.words.granted, step);
    std::memset(send.slots.data() + slot_of(step) * kMost, static_cast<int>(step), 10);
    publish(send, step);
    settle();
    const FifoEntry& come = receive.words.slots[slot_of(step)].of_proxy;
    ASSERT_TRUE(is_of_step(come.size_word, step));
    EXPECT_EQ(bytes_of(come.size_word), 10U);
    EXPECT_EQ(come.offset, slot_of(step) * kMost);
    EXPECT_EQ(receive.slots[come.offset + 9], static_cast<std::byte>(step));
    EXPECT_EQ(send.words.granted, step + 1 + kFifoSteps);
    receive.words.granted = step + 1 + kFifoSteps;  // consumed
  }
  EXPECT_TRUE(failed_.empty());
}

TEST_F(ProxyEngineTest, AReceiverThatConsumesNothingStopsItsSender) {
  Fifo send, receive;
  add(send, FifoDirection::Send);
  add(receive, FifoDirection::Receive);
  order(send);
  order(receive);
  std::uint64_t step = 0;
  for (int i = 0; i < 100; ++i) {
    if (send.words.granted > step) publish(send, step++);
    settle();
  }
  // Eight in the receiver's slots, and as many as a wire and the sender's own slots hold.
  EXPECT_EQ(receive.words.filled, kFifoSteps);
  EXPECT_LE(step, 2 * kFifoSteps + 4);
  receive.words.granted = kFifoSteps + 1;
  settle();
  EXPECT_EQ(receive.words.filled, kFifoSteps + 1);
}

TEST_F(ProxyEngineTest, NonsenseInAnyWordOfAKernelsEndsItsGroup) {
  const auto expect_corrupt = [this](auto&& spoil, FifoDirection direction) {
    failed_.clear();
    Fifo fifo, other;
    add(fifo, direction, 7, 5);
    add(other, FifoDirection::Send, 7, 6);
    order(fifo);
    if (direction == FifoDirection::Send) {
      for (std::uint64_t step = 0; step < 3; ++step) publish(fifo, step);
      settle();
    }
    spoil(fifo.words);
    settle();
    EXPECT_EQ(failed_, (std::vector<std::uint64_t>{7}));
    EXPECT_EQ(why_.code, ErrorCode::DataLoss) << why_.to_string();
    EXPECT_NE(why_.message.find("node-d, lane 5"), std::string::npos) << why_.message;
    EXPECT_EQ(aborted(fifo).code, static_cast<std::uint8_t>(ErrorCode::DataLoss));
    EXPECT_EQ(aborted(other).code, static_cast<std::uint8_t>(ErrorCode::DataLoss));
    EXPECT_EQ(aborted(fifo).culprit_rank, 3);
    EXPECT_TRUE(engine_.remove(fifo.id));
    EXPECT_TRUE(engine_.remove(other.id));
  };
  expect_corrupt([](DeviceFifo& words) { words.slots[3].of_kernel.size_word = 0x1234567890; },
                 FifoDirection::Send);
  expect_corrupt(
      [](DeviceFifo& words) {
        words.filled = 100;
        words.slots[3].of_kernel = {.size_word = to_word(SizeWord{.step = 3, .bytes = 10}),
                                    .sequence = 4,
                                    .offset = 3 * kMost,
                                    .address = 0,
                                    .mode = SlotMode::Normal};
      },
      FifoDirection::Send);
  expect_corrupt([](DeviceFifo& words) { words.granted = 9; }, FifoDirection::Receive);
  expect_corrupt([](DeviceFifo& words) { words.granted = 7; }, FifoDirection::Receive);
}

TEST_F(ProxyEngineTest, ADeadlineEndsEveryPhaseAndSaysForWhomItWaited) {
  Fifo send;
  add(send, FifoDirection::Send);
  ASSERT_TRUE(send.orders->begin(2, 1000));
  settle(999);
  EXPECT_TRUE(engine_.is_open());
  EXPECT_EQ(engine_.next_deadline_ns(), 1000U);
  EXPECT_TRUE(failed_.empty());
  settle(1000);
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(why_.code, ErrorCode::DeadlineExceeded);
  EXPECT_NE(why_.message.find("this node's kernel to stage"), std::string::npos) << why_.message;
  EXPECT_NE(why_.message.find("0 of 2 steps"), std::string::npos) << why_.message;
  EXPECT_FALSE(engine_.is_open());

  Fifo receive;
  add(receive, FifoDirection::Receive, 2, 9);
  ASSERT_TRUE(receive.orders->begin(1, 5000));
  settle(5001);
  ASSERT_EQ(failed_.size(), 2U);
  EXPECT_NE(why_.message.find("receiving from node-d, lane 9"), std::string::npos) << why_.message;
  EXPECT_NE(why_.message.find("the peer's data"), std::string::npos) << why_.message;
}

TEST_F(ProxyEngineTest, AKernelsVerdictIsToldToItsGroup) {
  Fifo send, other;
  add(send, FifoDirection::Send);
  add(other, FifoDirection::Send, 1, 1);
  send.words.failed = to_word(Done{.number = 4,
                                   .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                                   .reason = static_cast<std::uint8_t>(Reason::Timeout),
                                   .culprit_rank = 3});
  settle();
  EXPECT_EQ(why_.code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(aborted(other).reason, static_cast<std::uint8_t>(Reason::Timeout));
}

TEST_F(ProxyEngineTest, WhatTheWireHoldsIsTakenBackBeforeAFifoGoes) {
  Fifo receive;
  add(receive, FifoDirection::Receive);
  settle();
  EXPECT_FALSE(engine_.remove(receive.id)) << "its rooms are posted";
  engine_.fail_group(1, error(ErrorCode::Aborted, Reason::RemoteAborted, "no more"));
  EXPECT_EQ(aborted(receive).code, static_cast<std::uint8_t>(ErrorCode::Aborted));
  settle();
  EXPECT_TRUE(engine_.remove(receive.id));
  EXPECT_EQ(engine_.fifos(), 0U);
  Fifo late;
  add(late, FifoDirection::Send);  // the group is gone, so its number is free
}

TEST_F(ProxyEngineTest, AGroupThatHasFailedTakesNoMore) {
  Fifo send, late;
  add(send, FifoDirection::Send);
  engine_.fail_group(1, error(ErrorCode::Aborted, Reason::RemoteAborted, "no more"));
  const auto added =
      engine_.add({.fifo = &late.words,
                   .memory = {.mode = SlotMode::Normal, .most_bytes = kMost, .slots = late.slots},
                   .wire = &link_.end(0),
                   .peer_name = "node-d",
                   .group = 1,
                   .orders = late.orders});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::Aborted);
}

TEST_F(ProxyEngineTest, AKernelThatStandsStillHoldsUpNobodyElse) {
  Fifo idle[4], send, receive;
  for (std::uint32_t i = 0; i < 4; ++i) add(idle[i], FifoDirection::Send, 10 + i, 10 + i);
  add(send, FifoDirection::Send);
  add(receive, FifoDirection::Receive);
  for (Fifo* fifo : {&idle[0], &idle[1], &idle[2], &idle[3], &send, &receive}) order(*fifo);
  for (std::uint64_t step = 0; step < 8; ++step) publish(send, step);
  settle();
  EXPECT_EQ(receive.words.filled, 8U);
}

TEST(FifoOrders, TheEarliestDeadlineOfAllThatAreOpenCounts) {
  FifoOrders orders;
  EXPECT_EQ(orders.deadline_ns(), FifoOrders::kNever);
  EXPECT_FALSE(orders.settle(0));
  ASSERT_TRUE(orders.begin(2, 900));
  ASSERT_TRUE(orders.begin(3, 500));
  EXPECT_EQ(orders.until(), 5U);
  EXPECT_EQ(orders.deadline_ns(), 500U);
  EXPECT_TRUE(orders.settle(4));
  EXPECT_EQ(orders.deadline_ns(), 500U);
  EXPECT_FALSE(orders.settle(5));
  EXPECT_EQ(orders.deadline_ns(), FifoOrders::kNever);
  ASSERT_TRUE(orders.begin(0, 1)) << "nothing to do is nothing open";
  EXPECT_FALSE(orders.settle(5));
  for (std::uint64_t i = 0; i < FifoOrders::kMost; ++i) EXPECT_TRUE(orders.begin(1, 1));
  EXPECT_FALSE(orders.begin(1, 1));
  EXPECT_TRUE(orders.settle(6));
  EXPECT_TRUE(orders.begin(1, 1));
}

}  // namespace
}  // namespace arcomm::proxy
