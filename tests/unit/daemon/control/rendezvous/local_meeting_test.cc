#include "daemon/control/rendezvous/local_meeting.h"

#include <gmock/gmock.h>

#include <chrono>

namespace arcomm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using State = LocalMeeting::State;

constexpr SessionId kSession{3, 1};

LocalMeeting::Call call_of(Rank rank, milliseconds deadline) {
  LocalMeeting::Call call;
  call.rank = rank;
  call.ranks = 2;
  call.session = kSession;
  call.device = "host:0";
  call.deadline = LocalMeeting::Clock::time_point(deadline);
  return call;
}

LocalMeeting meeting_with(Rank rank, milliseconds deadline) {
  LocalMeeting meeting;
  meeting.uid = 1000;
  meeting.ranks = 2;
  meeting.epoch = 4;
  meeting.calls.emplace(rank, call_of(rank, deadline));
  return meeting;
}

TEST(LocalMeeting, TakesOutWhoIsLateAndNamesWhomItWaitedFor) {
  LocalMeeting meeting = meeting_with(0, milliseconds(100));
  EXPECT_TRUE(meeting.take_late(LocalMeeting::Clock::time_point(milliseconds(99))).empty());
  const auto late = meeting.take_late(LocalMeeting::Clock::time_point(milliseconds(100)));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late.front().second.rank, 1);
  EXPECT_THAT(late.front().second.message,
              HasSubstr("rank 0 waited 100 ms for the other ranks: rank 1 of 2 has not called"));
  EXPECT_TRUE(meeting.calls.empty());
}

TEST(LocalMeeting, BeginsTheNextEpochInTimeForItsCallersToHear) {
  LocalMeeting meeting = meeting_with(0, milliseconds(300));
  meeting.calls.emplace(1, call_of(1, milliseconds(200)));
  meeting.unheard.push_back(1);  // of an attempt before
  const CommunicatorSpec spec = meeting.begin(meeting.part_of_all(), nullptr);
  EXPECT_EQ(meeting.state, State::Building);
  EXPECT_TRUE(meeting.unheard.empty());
  EXPECT_EQ(spec.epoch, 5U);
  EXPECT_EQ(spec.uid, 1000U);
  EXPECT_EQ(spec.ranks.size(), 2U);
  EXPECT_LT(spec.deadline_ns, 200'000'000U);
  EXPECT_TRUE(meeting.has(kSession));
}

TEST(LocalMeeting, SaysWhyACallComesTooLateForIt) {
  const auto refusal = [](const LocalMeeting& meeting, Rank rank) {
    const std::optional<Error> why = meeting.refuse(call_of(rank, milliseconds(100)));
    return why ? why->message : std::string("none");
  };
  LocalMeeting meeting = meeting_with(0, milliseconds(100));
  EXPECT_EQ(refusal(meeting, 1), "none");
  EXPECT_THAT(refusal(meeting, 0), HasSubstr("rank 0 of this communicator has already called"));
  meeting.state = State::Formed;
  EXPECT_THAT(refusal(meeting, 1), HasSubstr("rank 1 comes too late"));
  meeting.state = State::Ready;
  meeting.calls.clear();
  meeting.members.push_back({.rank = 0, .session = kSession, .member = {}});
  EXPECT_THAT(refusal(meeting, 0), HasSubstr("is in use in session"));
  EXPECT_THAT(refusal(meeting, 2), HasSubstr("ready with 2 ranks"));
}

}  // namespace
}  // namespace arcomm
