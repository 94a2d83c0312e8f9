// What each phase of a FIFO does when its wire does not go on, or fails: the deadline ends it and
// says for whom it waited, a failure is the wire's own words, and both name node, lane and step.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/proxy/fifo/fifo_words.h"
#include "daemon/proxy/proxy_engine.h"

namespace arcomm::proxy {
namespace {

constexpr std::uint32_t kRoom = 64;
constexpr std::uint64_t kDeadlineNs = 1000;

// Says what it was told to say.
class ObedientWire final : public Wire {
 public:
  net::Progress send_says = net::Progress::Done, receive_says = net::Progress::Done,
                test_says = net::Progress::Done, flush_says = net::Progress::Done;
  std::uint32_t bytes = kRoom;
  int cancelled = 0;

  net::Progress send(std::uint32_t, std::uint64_t, std::span<const std::byte>,
                     Transfer& transfer) override {
    transfer = ++next_;
    return send_says;
  }
  net::Progress receive(std::uint32_t, std::uint64_t, std::span<std::byte>,
                        Transfer& transfer) override {
    transfer = ++next_;
    return receive_says;
  }
  net::Progress test(Transfer, std::uint32_t& come) override {
    come = bytes;
    return test_says;
  }
  net::Progress flush(std::uint32_t, std::span<const std::byte>) override { return flush_says; }
  net::Progress cancel(Transfer) override {
    ++cancelled;
    return net::Progress::Done;
  }
  net::Progress progress() override { return net::Progress::Again; }
  const Error& error() const override { return error_; }

 private:
  Transfer next_ = 0;
  Error error_{ErrorCode::Unavailable, Reason::RemoteDied, "rail 1: connection reset", -1};
};

class FifoPhasesTest : public testing::Test, public ProxyEvents {
 protected:
  void group_failed(std::uint64_t, const Error& why) override { failures_.push_back(why); }

  // One FIFO of twelve steps; what a kernel does it has done as far as it may.
  void run(FifoDirection direction, bool kernel_works = true) {
    const auto added =
        engine_.add({.direction = direction,
                     .fifo = &words_,
                     .memory = {.mode = SlotMode::Normal, .most_bytes = kRoom, .slots = slots_},
                     .wire = &wire_,
                     .lane = 4,
                     .peer = 3,
                     .peer_name = "node-d",
                     .group = 1,
                     .orders = orders_});
    ASSERT_TRUE(added) << added.error().to_string();
    ASSERT_TRUE(orders_->begin(12, kDeadlineNs));
    for (int i = 0; i < 100; ++i) {
      if (kernel_works && direction == FifoDirection::Send) stage();
      engine_.progress(kDeadlineNs - 1);
    }
  }
  void stage() {
    for (; step_ < words_.granted && step_ < 12; ++step_) {
      FifoEntry& entry = words_.slots[slot_of(step_)].of_kernel;
      entry.sequence = step_ + 1;
      entry.offset = std::uint64_t{slot_of(step_)} * kRoom;
      entry.mode = SlotMode::Normal;
      words_.filled = step_ + 1;
      store_release(entry.size_word, to_word(SizeWord{.step = step_, .bytes = kRoom}));
    }
  }
  void expect_timeout(const std::string& waited_for) {
    EXPECT_TRUE(failures_.empty()) << failures_.front().message;
    engine_.progress(kDeadlineNs);
    ASSERT_EQ(failures_.size(), 1U);
    EXPECT_EQ(failures_[0].code, ErrorCode::DeadlineExceeded);
    expect_names(waited_for);
  }
  void expect_failure(ErrorCode code, const std::string& why) {
    ASSERT_EQ(failures_.size(), 1U);
    EXPECT_EQ(failures_[0].code, code);
    expect_names(why);
  }
  void expect_names(const std::string& what) {
    const std::string& message = failures_[0].message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(message.find("node-d, lane 4, step "), std::string::npos) << message;
    EXPECT_EQ(done_from(words_.aborted).culprit_rank, 3);
    EXPECT_EQ(done_from(words_.aborted).code, static_cast<std::uint8_t>(failures_[0].code));
  }

  DeviceFifo words_{};
  std::vector<std::byte> slots_ = std::vector<std::byte>(kFifoSteps * kRoom);
  std::shared_ptr<FifoOrders> orders_ = std::make_shared<FifoOrders>();
  ObedientWire wire_;
  ProxyEngine engine_{*this};
  std::vector<Error> failures_;
  std::uint64_t step_ = 0;
};

TEST_F(FifoPhasesTest, ASendFifoWaitsForItsKernel) {
  run(FifoDirection::Send, false);
  expect_timeout("this node's kernel to stage");
}

TEST_F(FifoPhasesTest, WhatAKernelStagesBeforeItsOrderStaysAndMayBeForgotten) {
  ASSERT_TRUE(
      engine_.add({.direction = FifoDirection::Send,
                   .fifo = &words_,
                   .memory = {.mode = SlotMode::Normal, .most_bytes = kRoom, .slots = slots_},
                   .wire = &wire_,
                   .peer_name = "node-d",
                   .group = 1,
                   .orders = orders_}));
  wire_.send_says = net::Progress::Failed;  // if it were asked
  stage();
  for (int i = 0; i < 20; ++i) engine_.progress(1);
  EXPECT_TRUE(failures_.empty());
  engine_.end_early(1);
  EXPECT_NE(words_.aborted, 0U) << "the kernel is to end";
  engine_.forget_early(1);
  EXPECT_EQ(words_.aborted, 0U);
  for (const FifoSlot& slot : words_.slots) EXPECT_EQ(slot.of_kernel.size_word, 0U);
  // With its order what the next kernel stages goes, from the same step on.
  wire_.send_says = net::Progress::Done;
  step_ = 0;
  ASSERT_TRUE(orders_->begin(12, kDeadlineNs));
  engine_.end_early(1);
  EXPECT_EQ(words_.aborted, 0U) << "it is ordered";
  for (int i = 0; i < 100; ++i) {
    stage();
    engine_.progress(1);
  }
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(step_, 12U);
  EXPECT_TRUE(orders_->is_idle());
}

TEST_F(FifoPhasesTest, WhatComesBeforeTheOrderIsNotToldToAKernel) {
  ASSERT_TRUE(
      engine_.add({.direction = FifoDirection::Receive,
                   .fifo = &words_,
                   .memory = {.mode = SlotMode::Normal, .most_bytes = kRoom, .slots = slots_},
                   .wire = &wire_,
                   .peer_name = "node-d",
                   .group = 1,
                   .orders = orders_}));
  for (int i = 0; i < 20; ++i) engine_.progress(1);
  EXPECT_EQ(words_.filled, 0U);
  ASSERT_TRUE(orders_->begin(3, kDeadlineNs));
  for (int i = 0; i < 20; ++i) engine_.progress(1);
  EXPECT_EQ(words_.filled, 3U) << "and no more than was ordered";
}

TEST_F(FifoPhasesTest, ASendFifoWaitsForTheWireToTake) {
  wire_.send_says = net::Progress::Again;
  run(FifoDirection::Send);
  EXPECT_EQ(step_, kFifoSteps);
  expect_timeout("the wire to take the next step");
}

TEST_F(FifoPhasesTest, ASendFifoWaitsForTheWireToDeliver) {
  wire_.test_says = net::Progress::Again;
  run(FifoDirection::Send);
  EXPECT_EQ(words_.granted, kFifoSteps);
  expect_timeout("the wire to deliver");
  for (int i = 0; i < 20; ++i) engine_.progress(kDeadlineNs);
  EXPECT_EQ(wire_.cancelled, static_cast<int>(kFifoSteps)) << "all that it held is taken back";
}

TEST_F(FifoPhasesTest, AReceiveFifoWaitsForTheWireToTakeItsRoom) {
  wire_.receive_says = net::Progress::Again;
  run(FifoDirection::Receive);
  expect_timeout("the wire to take its room");
}

TEST_F(FifoPhasesTest, AReceiveFifoWaitsForThePeer) {
  wire_.test_says = net::Progress::Again;
  run(FifoDirection::Receive);
  expect_timeout("the peer's data");
  EXPECT_EQ(words_.filled, 0U);
}

TEST_F(FifoPhasesTest, AReceiveFifoWaitsForTheFlushBeforeTheKernelIsTold) {
  wire_.flush_says = net::Progress::Again;
  run(FifoDirection::Receive);
  expect_timeout("the wire to flush");
  EXPECT_EQ(words_.filled, 0U);
}

TEST_F(FifoPhasesTest, AReceiveFifoWaitsForItsKernel) {
  run(FifoDirection::Receive);
  EXPECT_EQ(words_.filled, kFifoSteps);
  expect_timeout("this node's kernel to consume");
}

TEST_F(FifoPhasesTest, TheWiresOwnWordsAreToldWhereverItFails) {
  struct Case {
    FifoDirection direction;
    net::Progress ObedientWire::*call;
  };
  for (const Case& one : {Case{FifoDirection::Send, &ObedientWire::send_says},
                          Case{FifoDirection::Send, &ObedientWire::test_says},
                          Case{FifoDirection::Receive, &ObedientWire::receive_says},
                          Case{FifoDirection::Receive, &ObedientWire::test_says},
                          Case{FifoDirection::Receive, &ObedientWire::flush_says}}) {
    ProxyEngine engine(*this);
    ObedientWire wire;
    wire.*one.call = net::Progress::Failed;
    words_ = {};
    step_ = 0;
    failures_.clear();
    const auto orders = std::make_shared<FifoOrders>();
    ASSERT_TRUE(orders->begin(12, kDeadlineNs));
    ASSERT_TRUE(
        engine.add({.direction = one.direction,
                    .fifo = &words_,
                    .memory = {.mode = SlotMode::Normal, .most_bytes = kRoom, .slots = slots_},
                    .wire = &wire,
                    .lane = 4,
                    .peer = 3,
                    .peer_name = "node-d",
                    .group = 1,
                    .orders = orders}));
    if (one.direction == FifoDirection::Send) stage();
    for (int i = 0; i < 20; ++i) engine.progress(1);
    expect_failure(ErrorCode::Unavailable, "rail 1: connection reset");
  }
}

TEST_F(FifoPhasesTest, MoreBytesThanThereWasRoomForAreNotToldToTheKernel) {
  wire_.bytes = kRoom + 1;
  run(FifoDirection::Receive);
  expect_failure(ErrorCode::DataLoss, "65 bytes came");
  EXPECT_EQ(words_.filled, 0U);
}

}  // namespace
}  // namespace arcomm::proxy
