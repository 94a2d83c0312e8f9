// Starts by stream memory operations, and what frees a stream that waits by them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "client/src/gpu/posting/memory_starts.h"
#include "client/src/gpu/posting/posted_starts.h"
#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kTimeoutMs = 1000;  // the fixture's

class GpuMemoryPostTest : public GpuMemberTest {
 public:
  GpuMemoryPostTest() {
    member.reset();
    make(nullptr, PostMode::Memory);
  }

  // The watch may be writing them.
  DeviceMailbox seen() {
    DeviceMailbox now;
    EXPECT_TRUE(gpu->read(&now, words, sizeof(now), kWordsWithin).ok());
    return now;
  }
  void put(std::uint64_t& word, std::uint64_t value) {
    EXPECT_TRUE(gpu->write(&word, &value, sizeof(value), kWordsWithin).ok());
  }
  std::uint32_t done(LaunchPath path) {
    return done_from(seen().paths[static_cast<std::uint32_t>(path)].done).number;
  }
  // As the daemon would.
  void answer(LaunchPath path, std::uint32_t number) {
    put(words->paths[static_cast<std::uint32_t>(path)].done, to_word(Done{.number = number}));
  }
  bool is_done_soon(LaunchPath path, std::uint32_t number) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (done(path) != number) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
};

TEST_F(GpuMemoryPostTest, StartsCarryTheNumbersThatAKernelWouldTake) {
  int stream = 0;
  ASSERT_TRUE(all_reduce(64, &stream).ok() && all_reduce(64, &stream).ok());
  ASSERT_TRUE(all_reduce(1 << 20, &stream).ok());
  EXPECT_TRUE(gpu->starts.empty());
  ASSERT_EQ(gpu->memory_starts.size(), 3u);
  const MemoryPost& second = gpu->memory_starts[1].start;
  EXPECT_EQ(second.number, 2u);
  EXPECT_EQ(second.note.posted, 2u);
  EXPECT_EQ(second.note.number, 2u);
  EXPECT_FALSE(second.waits_for_order) << "its stream has an order already";
  EXPECT_EQ(gpu->memory_starts[2].start.number, 1u) << "the other path counts for itself";
  EXPECT_EQ(gpu->memory_starts[2].start.post.path, LaunchPath::Launched);
}

TEST_F(GpuMemoryPostTest, OnSeveralStreamsAStartWaitsForTheOneBeforeIt) {
  int first = 0, second = 0;
  ASSERT_TRUE(all_reduce(64, &first).ok() && all_reduce(64, &second).ok());
  EXPECT_TRUE(gpu->memory_starts[1].start.waits_for_order);
}

TEST_F(GpuMemoryPostTest, OnceAGraphHoldsAStartOnlyTheGpuKnowsTheNumbers) {
  ASSERT_TRUE(all_reduce(64).ok());
  gpu->capturing = true;
  ASSERT_TRUE(all_reduce(64).ok());
  gpu->capturing = false;
  ASSERT_TRUE(all_reduce(64).ok());
  EXPECT_EQ(gpu->memory_starts.size(), 1u);
  ASSERT_EQ(gpu->starts.size(), 2u);
  EXPECT_EQ(gpu->starts[1].post.order, StartOrder::Counted);
}

TEST_F(GpuMemoryPostTest, AWaitEndsWhenTheCommunicatorIsClosedByTheDaemon) {
  ASSERT_TRUE(all_reduce(64).ok() && all_reduce(64).ok());
  gpu->ring(gpu->memory_starts[0]);
  put(words->closed, to_word(Done{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                                  .reason = static_cast<std::uint8_t>(Reason::RemoteDied),
                                  .culprit_rank = 1}));
  EXPECT_TRUE(is_done_soon(LaunchPath::Resident, 2)) << "of the one that is still to begin, too";
  const Error why = member->look();
  EXPECT_EQ(why.reason, Reason::RemoteDied);
  EXPECT_EQ(why.rank, 1);
}

TEST_F(GpuMemoryPostTest, AWaitEndsWhenTheDaemonIsLost) {
  ASSERT_TRUE(all_reduce(1 << 20).ok());
  gpu->ring(gpu->memory_starts[0]);
  member->close(error(ErrorCode::Unavailable, Reason::DaemonLost, "the daemon is gone"));
  EXPECT_TRUE(is_done_soon(LaunchPath::Launched, 1));
}

TEST_F(GpuMemoryPostTest, WhatTheDaemonAnswersIsLeftAlone) {
  ASSERT_TRUE(all_reduce(64).ok());
  gpu->ring(gpu->memory_starts[0]);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(done(LaunchPath::Resident), 0u);
  answer(LaunchPath::Resident, 1);
  gpu->pass(gpu->memory_starts[0]);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(seen().closed, 0u);
}

// The rest by the hands of a clock: no watch knows of these starts.
class MemoryStartsTest : public GpuMemoryPostTest {
 public:
  MemoryStartsTest() {
    Result<std::unique_ptr<GpuMailbox>> opened =
        GpuMailbox::open(*gpu, memfd(kMemoryBytes), kMemoryBytes, memfd(sizeof(HostPages)));
    EXPECT_TRUE(opened.ok());
    mailbox = std::move(*opened);
    words = mailbox->words();
    starts = std::make_unique<MemoryStarts>(gpu, mailbox);
    starts->expect(LaunchPath::Resident, 1, kTimeoutMs * 1'000'000);
  }
  MemoryStarts::Clock::time_point at(std::uint64_t ms) const { return begin + milliseconds(ms); }

  const MemoryStarts::Clock::time_point begin = MemoryStarts::Clock::now();
  std::shared_ptr<GpuMailbox> mailbox;
  std::unique_ptr<MemoryStarts> starts;
};

TEST_F(MemoryStartsTest, TheDeadlineRunsFromWhenTheStartWasSeenToHaveBegun) {
  EXPECT_TRUE(starts->look_after(at(0)));
  EXPECT_TRUE(starts->look_after(at(60'000)));
  EXPECT_EQ(words->closed, 0u) << "the stream has not come to it yet";
  words->paths[0].posted = 1;
  EXPECT_TRUE(starts->look_after(at(60'001)));
  EXPECT_TRUE(starts->look_after(at(60'001 + kTimeoutMs + 100)));
  EXPECT_EQ(words->closed, 0u);
  EXPECT_TRUE(starts->look_after(at(60'002 + kTimeoutMs + 100)));
  EXPECT_EQ(done_from(words->closed).reason, static_cast<std::uint8_t>(Reason::Timeout));
  EXPECT_EQ(done_from(words->paths[0].done).number, 1u) << "and the stream goes on";
  EXPECT_TRUE(starts->look_after(at(60'003 + kTimeoutMs + 100))) << "which it has yet to do";
  mailbox->notes()->passed[0] = 1;
  EXPECT_FALSE(starts->look_after(at(60'004 + kTimeoutMs + 100)));
}

TEST_F(MemoryStartsTest, NoStreamGoesOnWithoutAWordOfWhy) {
  words->paths[0].posted = 1;
  EXPECT_TRUE(starts->look_after(at(0)));
  gpu->refuses_writes = true;
  EXPECT_TRUE(starts->look_after(at(kTimeoutMs + 101)));
  gpu->refuses_writes = false;
  EXPECT_EQ(words->paths[0].done, 0u);
  EXPECT_TRUE(starts->look_after(at(kTimeoutMs + 103)));
  EXPECT_NE(words->closed, 0u);
  EXPECT_EQ(done_from(words->paths[0].done).number, 1u);
}

// What is let go rings in passing: by then the daemon has closed the communicator, too.
TEST_F(MemoryStartsTest, TheDaemonHearsOfTheEndBeforeWhatIsLetGoRings) {
  starts->end();
  EXPECT_TRUE(starts->look_after(at(0)));
  EXPECT_TRUE(starts->look_after(at(29)));
  EXPECT_EQ(words->paths[0].done, 0u);
  EXPECT_TRUE(starts->look_after(at(30)));
  EXPECT_EQ(done_from(words->paths[0].done).number, 1u);
}

TEST_F(MemoryStartsTest, EachStartHasADeadlineOfItsOwn) {
  starts->expect(LaunchPath::Resident, 2, kTimeoutMs * 1'000'000);
  words->paths[0].posted = 1;
  EXPECT_TRUE(starts->look_after(at(0)));
  words->paths[0].done = to_word(Done{.number = 1});
  words->paths[0].posted = 2;
  EXPECT_TRUE(starts->look_after(at(1000)));
  EXPECT_TRUE(starts->look_after(at(2000)));
  EXPECT_EQ(words->closed, 0u);
}

TEST_F(MemoryStartsTest, WhatTheDaemonWritesLateDoesNotStopAStreamAgain) {
  starts->expect(LaunchPath::Resident, 3, kTimeoutMs * 1'000'000);
  starts->end();
  EXPECT_TRUE(starts->look_after(at(0)));
  EXPECT_TRUE(starts->look_after(at(30)));
  EXPECT_EQ(done_from(words->paths[0].done).number, 3u);
  EXPECT_TRUE(starts->look_after(at(40))) << "the stream is still before the last of them";
  words->paths[0].done = to_word(Done{.number = 1});
  EXPECT_TRUE(starts->look_after(at(42)));
  EXPECT_EQ(done_from(words->paths[0].done).number, 3u);
}

TEST_F(MemoryStartsTest, AStartThatCouldNotBeMadeIsNotWaitedFor) {
  starts->take_back(LaunchPath::Resident, 1);
  EXPECT_FALSE(starts->look_after(at(0)));
}

TEST_F(MemoryStartsTest, AGpuThatDoesNotAnswerIsAskedAgain) {
  gpu->stuck = true;
  EXPECT_TRUE(starts->look_after(at(0)));
}

// Numbers begin just below 2^32, where a mailbox has been used so often.
class StartsThatComeRound : public GpuMemberTest {
 public:
  static constexpr std::uint32_t kBefore = 0xffff'fffd;

  void open(PostMode mode) {
    mailbox =
        GpuMailbox::open(*gpu, memfd(kMemoryBytes), kMemoryBytes, memfd(sizeof(HostPages))).value();
    for (MailboxPath& path : mailbox->words()->paths) {
      path.posted = kBefore;
      path.done = to_word(Done{.number = kBefore});
    }
    for (std::uint32_t& passed : mailbox->notes()->passed) passed = kBefore;
    call_notes.emplace(mailbox->host_pages());
    starts.emplace(
        PostedStarts::Parts{.gpu = gpu, .mailbox = mailbox, .mode = mode, .starts_before = kBefore},
        order, *call_notes);
    plan.id = {7, 1};
    plan.timeout_ns = 1'000'000'000;
  }
  bool are_over() const {
    MailboxCounts now;
    EXPECT_TRUE(mailbox->read_counts(*gpu, now).ok());
    return starts->are_over(now);
  }
  void expect_ended(bool ended) {
    EXPECT_EQ(are_over(), ended);
    const Result<PostedStarts::Progress> now = starts->progress();
    ASSERT_TRUE(now.ok());
    EXPECT_EQ(now->has_ended(plan), ended);
    EXPECT_TRUE(starts->any()) << "the path's count may be 0 again";
    EXPECT_TRUE(starts->any_of(plan));
  }
  // As the daemon answers it.
  void answer(std::uint32_t number) {
    const std::uint64_t done = to_word(Done{.number = number});
    EXPECT_TRUE(
        gpu->write(&mailbox->words()->paths[0].done, &done, sizeof(done), kWordsWithin).ok());
  }

  std::shared_ptr<GpuMailbox> mailbox;
  StreamOrder order;
  std::optional<CallNotes> call_notes;
  std::optional<PostedStarts> starts;
  GpuPlan plan;
};

TEST_F(StartsThatComeRound, ByMemoryOperationsGoOn) {
  open(PostMode::Memory);
  std::uint32_t number = kBefore;
  for (int turn = 0; turn < 8; ++turn) {
    ASSERT_TRUE(starts->post(plan, nullptr).ok());
    const FakeGpu::MemoryStart& made = gpu->memory_starts.back();
    EXPECT_EQ(made.start.number, ++number);
    expect_ended(false);
    gpu->ring(made);
    expect_ended(false);
    answer(number);
    EXPECT_FALSE(are_over()) << "its stream has not left it behind";
    gpu->pass(made);
    expect_ended(true);
  }
  EXPECT_EQ(number, 5u);
  EXPECT_EQ(mailbox->words()->closed, 0u);
}

TEST_F(StartsThatComeRound, ByKernelsGoOn) {
  open(PostMode::Kernel);
  for (int turn = 0; turn < 8; ++turn) {
    ASSERT_TRUE(starts->post(plan, nullptr).ok());
    expect_ended(false);
    FakeGpu::run(gpu->starts.back());
    expect_ended(true);
  }
  EXPECT_EQ(mailbox->words()->paths[0].posted, 5u);
}

TEST_F(StartsThatComeRound, SeveralThatWaitAreLetGoAtTheEnd) {
  open(PostMode::Memory);
  MemoryStarts waiting(gpu, mailbox);
  for (std::uint32_t number = kBefore + 1; number != 4; ++number)
    waiting.expect(LaunchPath::Resident, number, 1'000'000'000);
  const auto begin = MemoryStarts::Clock::now();
  waiting.end();
  EXPECT_TRUE(waiting.look_after(begin));
  EXPECT_TRUE(waiting.look_after(begin + milliseconds(30)));
  EXPECT_EQ(done_from(mailbox->words()->paths[0].done).number, 3u);
  mailbox->notes()->passed[0] = 0xffff'ffff;
  EXPECT_TRUE(waiting.look_after(begin + milliseconds(31))) << "streams are still before the last";
  mailbox->notes()->passed[0] = 3;
  mailbox->notes()->passed[1] = 0;
  EXPECT_FALSE(waiting.look_after(begin + milliseconds(32)));
}

TEST(PostMode, IsOneOfTwoWords) {
  ::setenv("ARCOMM_POST", "memops", 1);
  EXPECT_EQ(*post_mode_from_environment(), PostMode::Memory);
  ::setenv("ARCOMM_POST", "kernel", 1);
  EXPECT_EQ(*post_mode_from_environment(), PostMode::Kernel);
  ::setenv("ARCOMM_POST", "memory", 1);
  const Result<PostMode> refused = post_mode_from_environment();
  ::unsetenv("ARCOMM_POST");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "ARCOMM_POST is \"memory\": kernel or memops expected");
  EXPECT_EQ(*post_mode_from_environment(), PostMode::Kernel);
}

}  // namespace
}  // namespace arcomm::client
