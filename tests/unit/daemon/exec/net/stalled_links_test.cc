#include "daemon/exec/net/links/stalled_links.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace arcomm {
namespace {

class CountedLinks final : public Links {
 public:
  void send(PeerId, net::MessageKind, const net::FrameHeader&,
            std::initializer_list<std::span<const std::byte>>) override {}
  net::Progress post(PeerId, const net::Frame&, net::OnLoan&) override {
    return net::Progress::Again;
  }
  net::Regions* regions() override { return nullptr; }
  void sever(PeerId peer, const Error&) override { severed.push_back(peer); }
  std::uint64_t moved_bytes(PeerId peer) const override { return moved.at(peer); }

  std::map<PeerId, std::uint64_t> moved{{1, 10}, {2, 10}};
  std::vector<PeerId> severed;
};

class StalledLinksTest : public testing::Test {
 protected:
  using Peers = std::vector<StalledLinks::Peer>;
  static Peers peers(bool first_holds, bool second_holds) {
    return {{.id = 1, .name = "one", .holds = first_holds},
            {.id = 2, .name = "two", .holds = second_holds}};
  }
  // The next look, for which it is time.
  void look(const Peers& peers) {
    now_ns_ += StalledLinks::kMostHeldNs + 1;
    ASSERT_TRUE(stalled_.is_due(now_ns_));
    stalled_.sever(links_, peers, now_ns_);
  }
  std::uint64_t now_ns_ = 1000;
  CountedLinks links_;
  StalledLinks stalled_;
};

TEST_F(StalledLinksTest, NothingIsDueBeforeAnOperationIsToldToEnd) {
  EXPECT_FALSE(stalled_.is_due(~std::uint64_t{0}));
  stalled_.begin(links_, peers(true, true), now_ns_);
  EXPECT_FALSE(stalled_.is_due(now_ns_ + StalledLinks::kMostHeldNs));
}

TEST_F(StalledLinksTest, APeerThatHoldsBytesAndMovesNoneLosesItsLink) {
  stalled_.begin(links_, peers(true, true), now_ns_);
  links_.moved[2] += 1;
  look(peers(true, true));
  EXPECT_EQ(links_.severed, std::vector<PeerId>{1});
}

TEST_F(StalledLinksTest, APeerThatHoldsNothingKeepsItsLinkWhileAnotherHoldsSomething) {
  stalled_.begin(links_, peers(true, true), now_ns_);
  look(peers(false, true));
  EXPECT_EQ(links_.severed, std::vector<PeerId>{2});
}

TEST_F(StalledLinksTest, WhereNobodyHoldsBytesAllThatMoveNoneAreSevered) {
  stalled_.begin(links_, peers(false, false), now_ns_);
  look(peers(false, false));
  EXPECT_EQ(links_.severed, (std::vector<PeerId>{1, 2}));
}

TEST_F(StalledLinksTest, APeerThatMovesBytesOfOthersIsSeveredAtTheLongerDeadline) {
  stalled_.begin(links_, peers(true, false), now_ns_);
  const std::uint64_t until = now_ns_ + StalledLinks::kMostHeldOfMovingNs;
  while (links_.severed.empty()) {
    ASSERT_LT(now_ns_, until + 2 * StalledLinks::kMostHeldNs);
    links_.moved[1] += 1;
    look(peers(true, false));
  }
  EXPECT_GT(now_ns_, until);
  EXPECT_EQ(links_.severed, std::vector<PeerId>{1});
}

}  // namespace
}  // namespace arcomm
