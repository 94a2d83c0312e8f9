#include "daemon/session/kept_rings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "proto/ring/doorbell.h"
#include "proto/ring/segment.h"
#include "tests/unit/daemon/telemetry/notify_listener.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ring::SessionState;

constexpr std::uint32_t kSlots = 8;
constexpr SessionId kSession{7, 0x2a};

// A session with both its sides, of which the daemon's is then dead.
struct DeadSession {
  ring::Segment segment = ring::Segment::create(kSlots, kSession).value();
  ring::Producer<ring::WorkRequest> submit{segment.requests()};
  ring::Consumer<ring::WorkRequest> read{segment.requests()};
  ring::Producer<ring::Completion> complete{segment.completions()};
  ring::Consumer<ring::Completion> reap{segment.completions()};

  void submit_one(std::uint64_t ticket) {
    ring::WorkRequest request;
    request.ticket = ticket;
    request.seq = ticket + 100;
    ASSERT_EQ(submit.push(request), ring::Push::Done);
  }
  void read_one() {
    ring::WorkRequest request;
    ASSERT_EQ(read.pop(request), ring::Pop::Done);
  }
  void run_one(std::uint64_t ticket) {
    submit_one(ticket);
    read_one();
    ring::Completion completion;
    completion.ticket = ticket;
    ASSERT_EQ(complete.push(completion), ring::Push::Done);
    ASSERT_EQ(reap.pop(completion), ring::Pop::Done);
  }
  EndedRings end() const {
    Result<EndedRings> ended = end_rings(duplicate(segment.fd()));
    EXPECT_TRUE(ended) << ended.error().message;
    return ended ? *ended : EndedRings{};
  }
  SessionState state() const {
    return static_cast<SessionState>(segment.control().session_state.load());
  }
  Reason reason() const { return reason_from(segment.control().session_reason.load()); }
};

TEST(KeptRings, AnswerWhatNobodyReadAndSayThatTheDaemonIsGone) {
  DeadSession session;
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) session.submit_one(ticket);
  session.read_one();  // was in flight: nobody knows its ticket any more
  const EndedRings ended = session.end();
  EXPECT_TRUE(ended.was_open);
  EXPECT_TRUE(ended.in_order);
  EXPECT_EQ(ended.operations, 3u);
  EXPECT_EQ(ended.unread, 2u);
  for (std::uint64_t ticket = 2; ticket <= 3; ++ticket) {
    ring::Completion completion;
    ASSERT_EQ(session.reap.pop(completion), ring::Pop::Done);
    EXPECT_EQ(completion.ticket, ticket);
    EXPECT_EQ(completion.seq, ticket + 100);
    EXPECT_EQ(error_code_from(completion.code), ErrorCode::Unavailable);
    EXPECT_EQ(reason_from(completion.reason), Reason::DaemonLost);
    EXPECT_NE(std::string(completion.detail), "");
  }
  EXPECT_EQ(session.reap.peek(), ring::Pop::Empty);
  EXPECT_EQ(session.state(), SessionState::Closed);
  EXPECT_EQ(session.reason(), Reason::DaemonLost);
  EXPECT_FALSE(session.end().was_open) << "ended twice";
  EXPECT_EQ(session.reap.peek(), ring::Pop::Empty);
}

TEST(KeptRings, GoOnWhereTheCompletionsStoodAfterAnyNumberOfThem) {
  for (std::uint64_t before = 0; before <= 4ull * kSlots; ++before) {
    DeadSession session;
    for (std::uint64_t i = 0; i < before; ++i) session.run_one(i);
    session.submit_one(9000);
    const EndedRings ended = session.end();
    EXPECT_TRUE(ended.in_order) << before;
    EXPECT_EQ(ended.operations, 1u) << before;
    ring::Completion completion;
    ASSERT_EQ(session.reap.pop(completion), ring::Pop::Done) << before;
    EXPECT_EQ(completion.ticket, 9000u);
    EXPECT_EQ(session.reap.peek(), ring::Pop::Empty) << before;
  }
}

TEST(KeptRings, AnswerAsManyAsTheClientHasLeftRoomFor) {
  DeadSession session;
  for (std::uint64_t i = 0; i < kSlots - 1; ++i) {
    session.submit_one(i);
    session.read_one();
    ASSERT_EQ(session.complete.push({}), ring::Push::Done);  // never reaped
  }
  for (std::uint64_t i = 0; i < kSlots; ++i) session.submit_one(100 + i);
  const EndedRings ended = session.end();
  EXPECT_TRUE(ended.in_order);
  EXPECT_EQ(ended.operations, kSlots);
  EXPECT_EQ(ended.unread, 1u);
  ring::Completion completion;
  for (std::uint64_t i = 0; i < kSlots; ++i)
    ASSERT_EQ(session.reap.pop(completion), ring::Pop::Done);
  EXPECT_EQ(completion.ticket, 100u);
  EXPECT_EQ(session.state(), SessionState::Closed);
}

TEST(KeptRings, BelieveNoStampAndNoIndex) {
  const auto closes_without_answer = [](const char* what, auto spoil) {
    DeadSession session;
    for (std::uint64_t i = 0; i < kSlots + 3; ++i) session.run_one(i);
    session.submit_one(1);
    spoil(session.segment);
    const EndedRings ended = session.end();
    EXPECT_FALSE(ended.in_order) << what;
    EXPECT_EQ(ended.unread, 0u) << what;
    EXPECT_EQ(session.state(), SessionState::Closed) << what;
    EXPECT_EQ(session.reap.peek(), ring::Pop::Empty) << what;
  };
  closes_without_answer("a stamp between two turns", [](const ring::Segment& segment) {
    segment.requests().slots[0].stamp += 3;
  });
  closes_without_answer("a stamp out of row", [](const ring::Segment& segment) {
    segment.requests().slots[2].stamp = 77;
  });
  closes_without_answer("turns ahead of its completions", [](const ring::Segment& segment) {
    for (std::uint32_t i = 0; i < kSlots; ++i) segment.requests().slots[i].stamp += 8ull * kSlots;
  });
  closes_without_answer("a hole", [](const ring::Segment& segment) {
    for (std::uint32_t i = 0; i < kSlots; ++i) segment.requests().slots[i].stamp = 0;
  });
  closes_without_answer("requests read that were never sent", [](const ring::Segment& segment) {
    segment.control().requests.head = ~std::uint64_t{0};
  });
  closes_without_answer(
      "completions reaped that were never sent",
      [](const ring::Segment& segment) { segment.control().completions.head = 1000; });
}

TEST(KeptRings, LeaveWhatTheDeadDaemonHadSaid) {
  DeadSession session;
  session.submit_one(1);
  session.segment.control().session_reason = static_cast<std::uint32_t>(Reason::Quarantined);
  session.segment.control().session_state = static_cast<std::uint32_t>(SessionState::Quarantined);
  EXPECT_FALSE(session.end().was_open);
  EXPECT_EQ(session.state(), SessionState::Quarantined);
  EXPECT_EQ(session.reason(), Reason::Quarantined);
  EXPECT_EQ(session.reap.peek(), ring::Pop::Empty);
}

TEST(KeptRings, WakeAClientThatSleeps) {
  const DeadSession session;
  using Clock = std::chrono::steady_clock;
  ring::FutexDoorbell bell(session.segment.control().completions.consumer_sleeps);
  bell.arm();
  const auto asleep = Clock::now();
  std::thread client([&] {
    while (session.state() == SessionState::Open &&
           Clock::now() - asleep < std::chrono::seconds(60))
      bell.sleep(std::chrono::seconds(60));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  session.end();
  client.join();
  EXPECT_LT(Clock::now() - asleep, std::chrono::seconds(30));
}

TEST(KeptRings, RefuseWhatIsNoSegment) {
  EXPECT_FALSE(end_rings(UniqueFd()));
  UniqueFd memory(::memfd_create("strange", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), ring::segment_bytes_for(kSlots)), 0);
  EXPECT_FALSE(end_rings(duplicate(memory.get()))) << "not sealed";
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(end_rings(duplicate(memory.get()))) << "no header";
}

TEST(KeptRings, AreStoredBySessionAndTakenOutOfTheStoreWhateverTheyAre) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager service = ServiceManager::from_environment();
  Metrics metrics;
  KeptRings kept(service, metrics);
  const DeadSession session;
  kept.keep(kSession, session.segment.fd());
  UniqueFd stored;
  EXPECT_EQ(systemd.heard(&stored), "FDSTORE=1\nFDNAME=rings-0000002a00000007");
  ASSERT_TRUE(stored);
  kept.release(kSession);
  EXPECT_EQ(systemd.heard(), "FDSTOREREMOVE=1\nFDNAME=rings-0000002a00000007");

  std::vector<InheritedSocket> passed;
  const auto pass = [&](UniqueFd fd, const char* name) {
    passed.push_back({.fd = std::move(fd), .name = name, .path = ""});
  };
  pass(std::move(stored), "rings-0000002a00000007");
  pass(UniqueFd(::memfd_create("strange", MFD_CLOEXEC)), "rings-0000002a00000008");
  pass(UniqueFd(::memfd_create("strange", MFD_CLOEXEC)), "rings-2a");
  pass(UniqueFd(::memfd_create("strange", MFD_CLOEXEC)), "rings-");
  pass(UniqueFd(::memfd_create("recorder", MFD_CLOEXEC)), "recorder0");
  kept.end_previous(passed);
  ASSERT_EQ(passed.size(), 1u);
  EXPECT_EQ(passed[0].name, "recorder0");
  EXPECT_EQ(session.state(), SessionState::Closed);
  for (const char* name :
       {"rings-0000002a00000007", "rings-0000002a00000008", "rings-2a", "rings-"})
    EXPECT_EQ(systemd.heard(), std::string("FDSTOREREMOVE=1\nFDNAME=") + name);
  EXPECT_EQ(systemd.heard(), "(nothing)");
  EXPECT_EQ(metrics.sessions_lost[Reason::DaemonLost].value(), 1u);
}

}  // namespace
}  // namespace arcomm
