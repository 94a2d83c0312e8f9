#include "client/src/session/due_aborts.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace arcomm::client {
namespace {

constexpr MemberId kFirst{1, 1}, kSecond{2, 1};

class DueAbortsTest : public testing::Test {
 protected:
  std::vector<MemberId> told_;
  std::set<std::uint32_t> deaf_;  // the daemon does not hear of these
  DueAborts aborts_{[this](MemberId member, Deadline) -> Status {
    told_.push_back(member);
    if (!deaf_.contains(member.index)) return {};
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "not now");
  }};
};

TEST_F(DueAbortsTest, TellsOfEachMemberOnce) {
  EXPECT_FALSE(aborts_.any());
  aborts_.add(kFirst);
  aborts_.add(kSecond);
  EXPECT_TRUE(aborts_.any());
  aborts_.tell();
  aborts_.tell();
  EXPECT_EQ(told_, (std::vector<MemberId>{kFirst, kSecond}));
  EXPECT_FALSE(aborts_.any());
}

TEST_F(DueAbortsTest, TellsAgainWhatTheDaemonDidNotHear) {
  deaf_ = {kSecond.index};
  aborts_.add(kFirst);
  aborts_.add(kSecond);
  aborts_.tell();
  EXPECT_TRUE(aborts_.any());
  deaf_.clear();
  aborts_.tell();
  EXPECT_EQ(told_, (std::vector<MemberId>{kFirst, kSecond, kSecond}));
  EXPECT_FALSE(aborts_.any());
}

TEST_F(DueAbortsTest, DoesNotTellOfMembersThatHaveLeft) {
  aborts_.add(kFirst);
  aborts_.add(kSecond);
  aborts_.forget(kFirst);
  aborts_.tell();
  EXPECT_EQ(told_, std::vector<MemberId>{kSecond});
}

TEST(DueAborts, AMemberThatLeavesWhileTheDaemonIsToldIsNotToldAgain) {
  int told = 0;
  DueAborts* all = nullptr;
  DueAborts aborts([&](MemberId member, Deadline) -> Status {
    ++told;
    all->add(kSecond);  // nothing is locked meanwhile
    all->forget(member);
    return error(ErrorCode::Unavailable, Reason::None, "not now");
  });
  all = &aborts;
  aborts.add(kFirst);
  aborts.tell();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(aborts.any()) << "the one that came meanwhile";
}

}  // namespace
}  // namespace arcomm::client
