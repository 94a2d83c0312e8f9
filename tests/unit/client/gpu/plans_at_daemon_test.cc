// Plans asked for in a session's ring, against a daemon that is this test: calls find no socket,
// and fail.
#include "client/src/gpu/plans_at_daemon.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "proto/ring/decode.h"
#include "tests/unit/client/host/rings/submission_fixture.h"

namespace arcomm::client {
namespace {

constexpr PlanId kMade{7, 3};

class PlansAtDaemonTest : public SubmissionTest {
 protected:
  static NewPlan wanted() {
    return {.member = {1, 2},
            .send_buffer = {3, 4},
            .send_offset_bytes = 512,
            .recv_buffer = {5, 6},
            .recv_offset_bytes = 1024,
            .spec = all_reduce_of(10, DType::BFloat16, ReduceOp::Max),
            .timeout_ms = 3000};
  }
  static Deadline soon() { return Deadline::after(milliseconds(10'000)); }
  static ring::Completion answer_to(const ring::WorkRequest& request, PlanId plan) {
    ring::Completion answer;
    answer.ticket = request.ticket;
    answer.seq = plan.bits();
    answer.stage = ring::Stage::Done;
    return answer;
  }
  // The next request, once it is there.
  ring::WorkRequest next_request() {
    ring::WorkRequest request;
    const auto until = Deadline::after(milliseconds(10'000));
    while (requests_.pop(request) != ring::Pop::Done) {
      if (until.passed()) ADD_FAILURE() << "nothing was asked";
      if (until.passed()) return {};
      std::this_thread::yield();
    }
    return request;
  }
  void push(const ring::Completion& answer) {
    ASSERT_EQ(completions_.push(answer), ring::Push::Done);
    ring::FutexDoorbell(segment_.control().completions.consumer_sleeps).ring();
  }
  // A worker that answers the next request so.
  std::jthread answering(std::function<ring::Completion(const ring::WorkRequest&)> answer) {
    return std::jthread([this, answer = std::move(answer)] { push(answer(next_request())); });
  }

  PlansAtDaemon plans_{control_, key_, submission_, waiting_};
};

TEST_F(PlansAtDaemonTest, APlanIsMadeInTheRingWithoutACall) {
  std::optional<ring::WorkRequest> asked;
  std::jthread worker = answering([&](const ring::WorkRequest& request) {
    asked = request;
    return answer_to(request, kMade);
  });
  const Result<PlanId> made = plans_.create(wanted(), soon());
  worker.join();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  EXPECT_EQ(*made, kMade);
  ring::PlanRequest request;
  const char* detail = "";
  ASSERT_EQ(ring::decode(*asked, request, detail), ring::Decode::Done) << detail;
  EXPECT_EQ(request.member, wanted().member);
  EXPECT_EQ(request.send.buffer, wanted().send_buffer);
  EXPECT_EQ(request.send.offset_bytes, 512u);
  EXPECT_EQ(request.recv.buffer, wanted().recv_buffer);
  EXPECT_EQ(request.recv.offset_bytes, 1024u);
  EXPECT_EQ(request.spec, wanted().spec);
  EXPECT_EQ(request.timeout_ns, 3'000'000'000u);
}

TEST_F(PlansAtDaemonTest, WhatTheRingRefusesIsAskedForByACallWhichSaysWhy) {
  const std::jthread worker = answering([](const ring::WorkRequest& request) {
    ring::Completion answer = answer_to(request, {});
    answer.code = static_cast<std::uint8_t>(ErrorCode::ResourceExhausted);
    return answer;
  });
  const Result<PlanId> made = plans_.create(wanted(), soon());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::Unavailable) << "of the call";
}

TEST_F(PlansAtDaemonTest, APlanThatIsReplacedGoesInTheRing) {
  std::optional<ring::WorkRequest> asked;
  std::jthread worker = answering([&](const ring::WorkRequest& request) {
    asked = request;
    return answer_to(request, kMade);
  });
  EXPECT_TRUE(plans_.replace(kMade, soon()).ok());
  worker.join();
  EXPECT_EQ(asked->magic, ring::kPlanMagic);
  EXPECT_EQ(PlanId::from_bits(asked->plan), kMade);
}

TEST_F(PlansAtDaemonTest, APlanThatComesTooLateIsLeftForACallToRemove) {
  EXPECT_FALSE(plans_.create(wanted(), Deadline::after(milliseconds(1))).ok());
  push(answer_to(next_request(), kMade));
  const std::vector<PlanId> late = submission_.take_late_plans();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late.front(), kMade);
  EXPECT_TRUE(submission_.take_late_plans().empty());
  EXPECT_TRUE(left_requests().empty());
}

TEST_F(PlansAtDaemonTest, ARemovalThatIsAnsweredTooLateRemovesNothingElse) {
  EXPECT_FALSE(plans_.replace(kMade, Deadline::after(milliseconds(1))).ok());
  push(answer_to(next_request(), kMade));
  work();
  EXPECT_TRUE(left_requests().empty());
}

TEST_F(PlansAtDaemonTest, ADaemonThatDiesEndsTheWait) {
  const std::jthread worker([&] {
    next_request();
    socket_.hang_up();
  });
  EXPECT_FALSE(plans_.create(wanted(), soon()).ok());
  EXPECT_TRUE(submission_.lost());
}

TEST_F(PlansAtDaemonTest, AWorkerThatNeverAnswersFillsNothing) {
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(plans_.create(wanted(), Deadline::after(milliseconds(0))).ok());
    left_requests();
  }
  EXPECT_FALSE(submission_.lost());
}

TEST_F(PlansAtDaemonTest, AnAnswerThatNobodyAskedForChangesNothing) {
  ring::WorkRequest stranger;
  stranger.ticket = std::uint64_t{77} << 32 | 0xffff'ffff;
  push(answer_to(stranger, kMade));
  work();
  EXPECT_TRUE(left_requests().empty());
  EXPECT_FALSE(submission_.lost());
}

TEST_F(PlansAtDaemonTest, SeveralThreadsAskAtATimeAndEachGetsItsOwn) {
  constexpr std::uint32_t kThreads = 4, kEach = 50;
  std::vector<std::jthread> threads;
  for (std::uint32_t thread = 1; thread <= kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        NewPlan mine = wanted();
        mine.send_offset_bytes = std::uint64_t{thread} << 32 | i;
        const Result<PlanId> made = plans_.create(mine, soon());
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        EXPECT_EQ(*made, (PlanId{i, thread}));
      }
    });
  }
  for (std::uint32_t i = 0; i < kThreads * kEach; ++i) {
    const ring::WorkRequest request = next_request();
    push(answer_to(request, {static_cast<std::uint32_t>(request.send_offset_bytes),
                             static_cast<std::uint32_t>(request.send_offset_bytes >> 32)}));
  }
}

TEST_F(PlansAtDaemonTest, ADaemonThatTakesNoPlansInTheRingIsNotAskedThere) {
  const ring::Segment plain = ring::Segment::create(kSlots, SessionId{2, 1}).value();
  Submission older{{.segment = ring::Segment::open(UniqueFd(::dup(plain.fd()))).value(),
                    .doorbell = ring::EventDoorbell::create().value(),
                    .max_in_flight = 0,
                    .descriptors = socket_.channel(),
                    .staging = staging_,
                    .aborts = aborts_}};
  Waiting waiting{older};
  EXPECT_FALSE(PlansAtDaemon(control_, key_, older, waiting).create(wanted(), soon()).ok());
  ring::Consumer<ring::WorkRequest> requests(plain.requests());
  EXPECT_EQ(requests.peek(), ring::Pop::Empty);
}

}  // namespace
}  // namespace arcomm::client
