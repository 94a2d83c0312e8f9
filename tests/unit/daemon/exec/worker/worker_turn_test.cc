// What one turn of the worker's loop may take: whoever calls waits for a turn, so that no user's
// sessions, however many and however full, may make one long. The loop's verbs are called by hand.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/worker/control_requests.h"
#include "daemon/exec/worker/turns/turn_shares.h"
#include "daemon/exec/worker/turns/turn_times.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {
namespace {

// A session and this end of its rings.
struct Rank {
  SessionId id;
  std::optional<ring::Segment> kept;
  std::optional<ring::Producer<ring::WorkRequest>> requests;
  std::optional<ring::Consumer<ring::Completion>> completions;

  void submit(const ring::WorkRequest& request) {
    ASSERT_EQ(requests->push(request), ring::Push::Done);
  }
  int read_all() {
    int count = 0;
    for (ring::Completion one; completions->pop(one) == ring::Pop::Done;) ++count;
    return count;
  }
};

class WorkerTurns : public ::testing::Test {
 protected:
  WorkerTurns()
      : device_(HostDevice::create({}).value()),
        recorder_(FlightRecorder::create(64).value()),
        worker_(Worker::create({.device = device_->name(),
                                .open_backend = host_backend_on(*device_),
                                .recorder = *recorder_,
                                .metrics = metrics_,
                                .settings = std::make_shared<Settings>(),
                                .tuning = std::make_shared<TuningTable>(default_tuning()),
                                .events = {}})
                    .value()),
        requests_(*worker_) {}

  Rank& open() {
    Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>());
    rank.id = SessionId{static_cast<std::uint32_t>(ranks_.size()), 1};
    Result<ring::Segment> segment = ring::Segment::create(64, rank.id);
    EXPECT_TRUE(segment.ok());
    rank.kept.emplace(ring::Segment::open(duplicate(segment->fd())).value());
    rank.requests.emplace(rank.kept->requests());
    rank.completions.emplace(rank.kept->completions());
    const Status opened = requests_.open_session({rank.id,
                                                  PeerCredentials{900, 1000, 1000},
                                                  "rank",
                                                  std::move(*segment),
                                                  ring::EventDoorbell::create().value(),
                                                  {}},
                                                 now_ns());
    EXPECT_TRUE(opened.ok());
    return rank;
  }
  void form_alone(const Rank& rank, int number) {
    CommunicatorSpec spec;
    spec.unique_id.fill(std::byte{1});
    spec.unique_id[0] = static_cast<std::byte>(number);
    spec.unique_id[1] = static_cast<std::byte>(number / 256);
    spec.epoch = 1;
    spec.ranks.push_back({rank.id, 0});
    std::unique_ptr<CommunicatorExtension> made;
    const auto formed = requests_.form_communicator(spec, made);
    ASSERT_TRUE(formed.ok() && formed.value().has_value());
  }
  std::size_t communicators() const { return worker_->state().communicators.size(); }

  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<FlightRecorder> recorder_;
  Metrics metrics_;
  std::unique_ptr<Worker> worker_;
  ControlRequests requests_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(WorkerTurns, TakeFewRequestsOfEachOfManySessionsAndManyOfFew) {
  ring::WorkRequest unknown;  // no such communicator: answered at once
  Rank& alone = open();
  for (int i = 0; i < 60; ++i) alone.submit(unknown);
  worker_->poll_sessions();
  EXPECT_EQ(alone.read_all(), 32);
  worker_->poll_sessions();
  EXPECT_EQ(alone.read_all(), 28);

  while (ranks_.size() < 128) open();
  for (const auto& rank : ranks_) {
    for (int i = 0; i < 40; ++i) rank->submit(unknown);
  }
  worker_->poll_sessions();
  int all = 0;
  for (const auto& rank : ranks_) {
    const int read = rank->read_all();
    EXPECT_GE(read, 1) << "everybody has a turn";
    all += read;
  }
  EXPECT_LE(all, 256);
}

// Case 47: a thousand communicators, with all that was called in them, ended in one turn.
TEST_F(WorkerTurns, EndASessionsCommunicatorsSomeAtATime) {
  Rank& rank = open();
  for (int i = 0; i < 100; ++i) form_alone(rank, i);
  bool is_done = false;
  requests_.close_session(rank.id, Reason::RemoteDied, "killed", [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    is_done = true;
  });
  std::size_t before = communicators();
  EXPECT_GE(before, 80u);
  int turns = 0;
  for (; !is_done && turns < 1000; ++turns) {
    ASSERT_TRUE(worker_->reap()) << "or the worker would sleep before all has gone";
    EXPECT_LE(before - communicators(), Departures::kMembersAtOnce);
    before = communicators();
    EXPECT_TRUE(!is_done || before == 0);
  }
  EXPECT_TRUE(is_done);
  EXPECT_GE(turns, 10);
  EXPECT_EQ(communicators(), 0u);
  EXPECT_FALSE(worker_->reap());
}

TEST_F(WorkerTurns, LetGoOfASessionsMemorySomeAtATime) {
  Rank& rank = open();
  const SharedBytes memory(4096);
  for (int i = 0; i < 300; ++i) {
    BufferSpec spec = memory.spec();
    ASSERT_TRUE(requests_.add_buffer(rank.id, spec).ok());
  }
  bool is_done = false;
  requests_.close_session(rank.id, Reason::None, "detached",
                          [&](const Status&) { is_done = true; });
  int turns = 0;
  while (!is_done && turns < 1000) {
    ASSERT_TRUE(worker_->reap());
    ++turns;
  }
  EXPECT_GE(turns, 3);
  EXPECT_EQ(worker_->state().buffers.size(), 0u);
}

TEST_F(WorkerTurns, AtTheEndLetGoOfAllThatStillGoes) {
  Rank& rank = open();
  const SharedBytes memory(4096);
  for (int i = 0; i < 300; ++i) {
    BufferSpec spec = memory.spec();
    ASSERT_TRUE(requests_.add_buffer(rank.id, spec).ok());
  }
  for (int i = 0; i < 100; ++i) form_alone(rank, i);
  std::optional<Status> told;
  requests_.close_session(rank.id, Reason::None, "detached",
                          [&](const Status& status) { told = status; });
  worker_->shut_down();
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->ok());
  EXPECT_EQ(communicators(), 0u);
}

class WorkerMessages : public WorkerTest {};

TEST_F(WorkerMessages, ThatTakeLongDoNotHoldUpRequestsUntilTheLastOfThem) {
  auto ranks = group(1);
  std::promise<void> all_posted;
  worker_->inspect([&](const auto&) { all_posted.get_future().wait(); });
  std::promise<bool> answered_before_the_last;
  for (int i = 0; i < 50; ++i) {
    worker_->inspect([&, i](const auto&) {
      std::this_thread::sleep_for(milliseconds(2));
      if (i == 49) answered_before_the_last.set_value(ranks[0]->next(milliseconds(0)).has_value());
    });
  }
  ranks[0]->call(4);
  all_posted.set_value();
  EXPECT_TRUE(answered_before_the_last.get_future().get());
}

// A plan that goes in a ring has the worker catch up, and start, before it reads on.
TEST(TurnShares, WhatIsStartedInTheMiddleOfReadingDoesNotLetAFloodTakeMoreOfTheTurn) {
  SessionSet sessions;
  const SessionId id{1, 1};
  ASSERT_TRUE(sessions
                  .open({id,
                         PeerCredentials{900, 1000, 1000},
                         "modest",
                         ring::Segment::create(64, id).value(),
                         ring::EventDoorbell::create().value(),
                         {}},
                        false, now_ns())
                  .ok());
  TurnShares shares(sessions);
  shares.begin(1);
  EXPECT_TRUE(shares.reads_on(2));
  shares.emptied(*sessions.find(id), 1);
  EXPECT_FALSE(shares.reads_on(2));
  shares.begin_starts();
  EXPECT_TRUE(shares.starts_on(2));
  EXPECT_FALSE(shares.reads_on(2));
  shares.begin(1);
  EXPECT_TRUE(shares.reads_on(2));
}

TEST(TurnTimes, AllTimeIsBusySpunYieldedOrSleptAndToldByTheSecond) {
  Metrics metrics;
  TurnTimes times(metrics);
  times.begin(0);
  EXPECT_FALSE(times.note(0, 100, true));
  times.waited(Waiting::Yield, 100, 350);
  EXPECT_FALSE(times.note(350, 400, false));  // a turn in vain
  times.waited(Waiting::Spin, 400, 500);
  times.waited(Waiting::Sleep, 500, 2'000'000'000);
  times.slept(2'000'000'000);
  EXPECT_EQ(metrics.worker_wait_ns.total(), 0u);
  EXPECT_TRUE(times.note(2'000'000'000, 2'000'000'010, true));
  EXPECT_EQ(metrics.worker_busy_ns.value(), 110u);
  EXPECT_EQ(metrics.worker_wait_ns[Waiting::Spin].value(), 150u);
  EXPECT_EQ(metrics.worker_wait_ns[Waiting::Yield].value(), 250u);
  EXPECT_EQ(metrics.worker_wait_ns[Waiting::Sleep].value(), 1'999'999'500u);
}

}  // namespace
}  // namespace arcomm::test
