// Rules of meeting that need two uids or exact times, on the rendezvous itself.
#include "daemon/control/rendezvous/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;

class RendezvousTest : public ::testing::Test {
 protected:
  Rendezvous::Call call_of(uid_t uid, Rank rank, int ranks,
                           std::vector<Result<Rendezvous::Joined>>& answers) {
    Rendezvous::Call call;
    call.unique_id.fill(std::byte{9});
    call.rank = rank;
    call.ranks = ranks;
    call.session = SessionId{static_cast<std::uint32_t>(rank), 1};
    call.peer.uid = uid;
    call.device = "host:0";
    call.called_at = now_;
    call.deadline = now_ + milliseconds(100);
    call.answer = [&answers](Result<Rendezvous::Joined> answer) {
      answers.push_back(std::move(answer));
    };
    return call;
  }

  Rendezvous::Clock::time_point now_ = Rendezvous::Clock::now();
  Rendezvous::Formed formed_;
  std::vector<MemberId> left_;
  Rendezvous rendezvous_{
      [this](std::size_t, const CommunicatorSpec&, Rendezvous::Formed formed) {
        formed_ = std::move(formed);
      },
      [this](std::size_t, SessionId, MemberId member) { left_.push_back(member); }};
};

TEST_F(RendezvousTest, RefusesAnotherUidWhileFormingAndForEver) {
  std::vector<Result<Rendezvous::Joined>> mine, theirs;
  rendezvous_.join(call_of(1000, 0, 2, mine));
  rendezvous_.join(call_of(2000, 1, 2, theirs));
  ASSERT_EQ(theirs.size(), 1u);
  EXPECT_EQ(theirs[0].error().code, ErrorCode::PermissionDenied);
  EXPECT_TRUE(mine.empty()) << "a stranger's guess must not disturb the ranks that wait";
  rendezvous_.join(call_of(1000, 1, 2, mine));
  formed_(std::vector<MemberId>{{1, 1}, {2, 1}});
  EXPECT_EQ(mine.size(), 2u);
  rendezvous_.dissolve(call_of(1000, 0, 2, mine).unique_id, 1);
  rendezvous_.join(call_of(2000, 0, 1, theirs));
  EXPECT_EQ(theirs.back().error().code, ErrorCode::PermissionDenied);
}

TEST_F(RendezvousTest, TimesOutOnlyTheCallsThatAreLate) {
  std::vector<Result<Rendezvous::Joined>> early, late;
  rendezvous_.join(call_of(1000, 0, 3, early));
  now_ += milliseconds(50);
  rendezvous_.join(call_of(1000, 1, 3, late));
  rendezvous_.sweep(now_ + milliseconds(60));
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].error().rank, 2);
  EXPECT_TRUE(late.empty());
}

TEST_F(RendezvousTest, ARankThatDiesWhileTheWorkerBuildsFailsTheOthersNamingIt) {
  std::vector<Result<Rendezvous::Joined>> answers;
  rendezvous_.join(call_of(1000, 0, 2, answers));
  rendezvous_.join(call_of(1000, 1, 2, answers));
  rendezvous_.session_gone(SessionId{1, 1}, 77, Reason::RemoteDied);
  EXPECT_TRUE(answers.empty());
  formed_(std::vector<MemberId>{{1, 1}, {2, 1}});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].error().rank, 1);
  EXPECT_EQ(rendezvous_.ready(), 0u);
  EXPECT_EQ(left_, (std::vector<MemberId>{{1, 1}, {2, 1}})) << "nobody else gives the seats back";
}

TEST_F(RendezvousTest, TellsAllRanksTheSegmentLimitOfTheLastCaller) {
  std::vector<Result<Rendezvous::Joined>> answers;
  Rendezvous::Call first = call_of(1000, 0, 2, answers), second = call_of(1000, 1, 2, answers);
  first.segment_limit_bytes = 1 << 20;
  second.segment_limit_bytes = 2 << 20;  // a reload came between
  rendezvous_.join(std::move(first));
  rendezvous_.join(std::move(second));
  formed_(std::vector<MemberId>{{1, 1}, {2, 1}});
  ASSERT_EQ(answers.size(), 2u);
  for (const auto& answer : answers) EXPECT_EQ(answer.value().segment_limit_bytes, 2u << 20);
}

TEST_F(RendezvousTest, CancelsTheCallOfThatSerialOnlyAndThenHasNoDeadline) {
  std::vector<Result<Rendezvous::Joined>> answers;
  Rendezvous::Call call = call_of(1000, 0, 2, answers);
  call.serial = 7;
  rendezvous_.join(std::move(call));
  rendezvous_.cancel(8);
  rendezvous_.cancel(0);
  EXPECT_TRUE(answers.empty());
  EXPECT_EQ(rendezvous_.next_deadline(), now_ + milliseconds(100));
  rendezvous_.cancel(7);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].error().code, ErrorCode::Cancelled);
  EXPECT_FALSE(rendezvous_.next_deadline());
}

TEST_F(RendezvousTest, ARefusedCallLeavesNoDeadline) {
  std::vector<Result<Rendezvous::Joined>> answers;
  rendezvous_.join(call_of(1000, 5, 2, answers));
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_FALSE(rendezvous_.next_deadline());
}

TEST_F(RendezvousTest, ShowsALiveRankToItsUidOnly) {
  std::vector<Result<Rendezvous::Joined>> answers;
  const UniqueIdBytes id = call_of(1000, 0, 1, answers).unique_id;
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(std::vector<MemberId>{{1, 1}});
  EXPECT_TRUE(rendezvous_.live(id, 1000, 0));
  EXPECT_FALSE(rendezvous_.live(id, 2000, 0));
}

TEST_F(RendezvousTest, ABuildThatFailsDoesNotUseUpTheEpoch) {
  std::vector<Result<Rendezvous::Joined>> answers;
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "full"));
  EXPECT_EQ(answers[0].error().reason, Reason::OutOfMemory);
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(std::vector<MemberId>{{1, 1}});
  EXPECT_EQ(answers[1].value().epoch, 1u);
}

TEST_F(RendezvousTest, ABuildThatTheWorkerDidNotAnswerUsesUpTheEpoch) {
  std::vector<Result<Rendezvous::Joined>> answers;
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no answer"));
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(std::vector<MemberId>{{1, 1}});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].value().epoch, 2u);
}

TEST_F(RendezvousTest, ForgetsNoMoreThanItMust) {
  std::vector<Result<Rendezvous::Joined>> answers;
  for (int i = 0; i < 1000; ++i) {
    Rendezvous::Call call = call_of(1000, 0, 1, answers);
    std::memcpy(call.unique_id.data(), &i, sizeof(i));
    const UniqueIdBytes id = call.unique_id;
    rendezvous_.join(std::move(call));
    formed_(std::vector<MemberId>{{1, 1}});
    rendezvous_.dissolve(id, 1);
  }
  Rendezvous::Call recent = call_of(1000, 0, 1, answers);
  const int last = 999;
  std::memcpy(recent.unique_id.data(), &last, sizeof(last));
  rendezvous_.join(std::move(recent));
  formed_(std::vector<MemberId>{{1, 1}});
  EXPECT_EQ(answers.back().value().epoch, 2u);
  Rendezvous::Call old = call_of(1000, 0, 1, answers);
  const int first = 0;
  std::memcpy(old.unique_id.data(), &first, sizeof(first));
  rendezvous_.join(std::move(old));
  formed_(std::vector<MemberId>{{1, 1}});
  EXPECT_EQ(answers.back().value().epoch, 1u) << "memory stays bounded: old ids begin anew";
}

// The oldest id is forgotten while its neighbour settles: AddressSanitizer sees whoever still looks
// at it.
TEST_F(RendezvousTest, ASessionThatEndsMayMakeItsNeighbourForgotten) {
  std::vector<Result<Rendezvous::Joined>> answers;
  const auto form = [&](int number) {
    Rendezvous::Call call = call_of(1000, 0, 1, answers);
    call.unique_id.fill(std::byte{0});
    call.unique_id[0] = static_cast<std::byte>(number / 256);
    call.unique_id[1] = static_cast<std::byte>(number % 256);
    const UniqueIdBytes id = call.unique_id;
    rendezvous_.join(std::move(call));
    formed_(std::vector<MemberId>{{1, 1}});
    return id;
  };
  for (int number = 1; number <= 256; ++number) rendezvous_.dissolve(form(number), 1);
  form(0);  // before the oldest of them
  EXPECT_EQ(rendezvous_.ready(), 1u);
  rendezvous_.session_gone(SessionId{0, 1}, 77, Reason::RemoteDied);
  EXPECT_EQ(rendezvous_.ready(), 0u);
  form(1);
  EXPECT_EQ(answers.back().value().epoch, 1u) << "it was forgotten";
  form(0);
  EXPECT_EQ(answers.back().value().epoch, 2u) << "it was not";
}

TEST_F(RendezvousTest, RemembersAnEpochForATime) {
  std::vector<Result<Rendezvous::Joined>> answers;
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(std::vector<MemberId>{{1, 1}});
  rendezvous_.dissolve(call_of(1000, 0, 1, answers).unique_id, 1);
  now_ += RememberedEpochs::kLifetime + std::chrono::minutes(1);
  rendezvous_.join(call_of(1000, 0, 1, answers));
  formed_(std::vector<MemberId>{{1, 1}});
  EXPECT_EQ(answers.back().value().epoch, 1u) << "what is old begins anew";
}

TEST_F(RendezvousTest, ACallerWhoComesBackFromItsAnswerFindsTheMeetingSettled) {
  std::vector<Result<Rendezvous::Joined>> answers, again;
  Rendezvous::Call first = call_of(1000, 0, 2, answers);
  first.answer = [&](const Result<Rendezvous::Joined>&) {
    rendezvous_.join(call_of(1000, 0, 1, again));  // the same id anew, with another number of ranks
  };
  rendezvous_.join(std::move(first));
  rendezvous_.session_gone(SessionId{0, 1}, 77, Reason::RemoteDied);
  formed_(std::vector<MemberId>{{1, 1}});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].ok());
}

}  // namespace
}  // namespace arcomm::test
