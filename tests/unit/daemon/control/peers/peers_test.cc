// Daemons that find, lose and refuse each other, and what they say to each other.
#include "tests/support/machine_pauses.h"
#include "tests/unit/daemon/control/peers/peer_nodes.h"

namespace arcomm::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PeersTest, FindEachOtherAndThemselvesInTheList) {
  const auto one = start(1, 3), two = start(2, 3), three = start(3, 3);
  EXPECT_TRUE(eventually([&] { return one->sees(address(2)) && one->sees(address(3)); }));
  EXPECT_TRUE(eventually([&] { return three->sees(address(1)) && three->sees(address(2)); }));
  EXPECT_EQ(one->find(address(2)).name, "node2");
  EXPECT_EQ(one->find(address(2)).instance, two->self().instance);
  EXPECT_EQ(one->self().address, address(1));
  EXPECT_EQ(one->state_of(address(1)), Peer::State::Self);
}

TEST_F(PeersTest, FindThemselvesBehindANameByAsking) {
  Settings settings = settings_of(1, 0);
  settings.net.peers = "localhost:7409";
  settings.net.listen = "127.0.0.1:7409";
  const auto one = start(settings);
  EXPECT_TRUE(eventually([&] { return one->self().address == "localhost:7409"; }));
}

TEST_F(PeersTest, TakeUpWhoKnowsTheTokenAndIsInNoList) {
  const auto one = start(1, 1);
  Settings settings = settings_of(2, 1);
  const auto two = start(settings);
  EXPECT_TRUE(eventually([&] { return one->sees(address(2)) && two->sees(address(1)); }));
  EXPECT_EQ(two->self().address, address(2));
}

TEST_F(PeersTest, WithAnotherTokenAreRefusedAndBothSidesSaySo) {
  const auto one = start(1, 2);
  Settings settings = settings_of(2, 2);
  settings.net.token_file = write_token("other", "another token of another test");
  const auto two = start(settings);
  EXPECT_TRUE(eventually([&] { return one->state_of(address(2)) == Peer::State::Refused; }));
  EXPECT_TRUE(eventually([&] { return two->state_of(address(1)) == Peer::State::Refused; }));
  EXPECT_THAT(one->why_of(address(2)), HasSubstr("node2 (" + address(2) + ") has another token"));
  EXPECT_THAT(two->why_of(address(1)), HasSubstr("net.token_file"));
  EXPECT_TRUE(eventually([&] { return one->last_refused().find("node2") != std::string::npos; }));
  const auto reply = one->announce(address(2), "any");
  ASSERT_FALSE(reply) << "it is not waited for";
  EXPECT_EQ(reply.error().reason, Reason::Permission);
}

TEST_F(PeersTest, SendEachOtherMessagesAndHearTheAnswers) {
  const auto one = start(1, 2), two = start(2, 2);
  const auto reply = one->announce(address(2), "id");
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->missing(), "rank 1");
  EXPECT_THAT(two->heard(), ElementsAre("announced by node1: id"));
  const auto refused = one->announce(address(2), "bad");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(refused.error().reason, Reason::Mismatch);
  EXPECT_EQ(refused.error().rank, 3);
  EXPECT_EQ(refused.error().message, "ranks differ");
}

TEST_F(PeersTest, HearWhatTheySendToThemselves) {
  const auto one = start(1, 1);
  ASSERT_TRUE(eventually([&] { return !one->self().address.empty(); }));
  ASSERT_TRUE(one->announce(address(1), "own"));
  EXPECT_THAT(one->heard(), ElementsAre("announced by node1: own"));
}

TEST_F(PeersTest, WaitForADaemonThatIsStartedLater) {
  const auto one = start(1, 2);
  std::unique_ptr<PeerNodeUnderTest> two;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(300));
    two = start(2, 2);
  });
  const auto reply = one->announce(address(2), "early");
  later.join();
  EXPECT_TRUE(reply) << reply.error().message;
}

TEST_F(PeersTest, SayWhyWhenNobodyComesInTime) {
  const auto one = start(1, 2);
  const auto reply = one->announce(address(2), "lonely", milliseconds(200));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(reply.error().message, HasSubstr(address(2) + " could not be reached in time"));
  const auto stranger = one->announce("10.1.2.3:7400", "unknown");
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code, ErrorCode::NotFound);
}

TEST_F(PeersTest, TakeOneThatIsFrozenForDeadAndTakeItUpAgain) {
  const auto one = start(1, 2), two = start(2, 2);
  ASSERT_TRUE(eventually([&] { return one->sees(address(2)) && two->sees(address(1)); }));
  const PeerId instance = two->self().instance;
  two->freeze(milliseconds(1200));
  EXPECT_TRUE(eventually([&] { return !one->sees(address(2)); }, milliseconds(1000)));
  ASSERT_EQ(one->lost().size(), 1u);
  EXPECT_EQ(one->lost()[0].first, instance);
  EXPECT_THAT(one->lost()[0].second, HasSubstr("net.peer_timeout_ms"));
  EXPECT_TRUE(eventually([&] { return one->find(address(2)).instance == instance; }));
}

TEST_F(PeersTest, HearAtOnceThatOneStopsAndFindItAgainWhenItIsStartedAnew) {
  Settings first = settings_of(1, 2), second = settings_of(2, 2);
  first.net.peer_timeout_ms = second.net.peer_timeout_ms = 60'000;
  const auto one = start(first);
  auto two = start(second);
  ASSERT_TRUE(eventually([&] { return one->sees(address(2)) && two->sees(address(1)); }));
  const PeerNode was = two->self();
  const MachinePauses pauses;
  two->leave();
  EXPECT_LT(pauses.age_ms(), 450 + pauses.most_ms());
  ASSERT_EQ(one->lost().size(), 1u);
  EXPECT_EQ(one->lost()[0].first, was.instance);
  EXPECT_EQ(one->lost()[0].second,
            "node2 (" + address(2) + ") stops: it was shut down in good order");
  const auto late = one->commit(was);
  ASSERT_FALSE(late) << "it is not waited for";
  // While it stops it is not taken up again, from neither side.
  std::this_thread::sleep_for(milliseconds(1300));
  EXPECT_FALSE(one->sees(address(2)));
  EXPECT_EQ(one->lost().size(), 1u);
  two.reset();
  two = start(second);
  EXPECT_TRUE(eventually([&] { return one->find(address(2)).instance == two->self().instance; }));
}

TEST_F(PeersTest, StopInTimeWhetherTheOthersHearItOrNot) {
  const auto one = start(1, 3);
  auto two = start(2, 3);
  ASSERT_TRUE(eventually([&] { return one->sees(address(2)) && two->sees(address(1)); }));
  two->freeze(milliseconds(1500));
  const auto begun = std::chrono::steady_clock::now();
  one->leave();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(1200));
}

TEST_F(PeersTest, TakeOneThatIsStartedAnewForDeadAndForAnother) {
  const auto one = start(1, 2);
  auto two = start(2, 2);
  ASSERT_TRUE(eventually([&] { return one->sees(address(2)); }));
  const PeerNode was = two->self();
  two.reset();
  two = start(2, 2);
  EXPECT_TRUE(eventually([&] { return one->find(address(2)).instance == two->self().instance; }));
  ASSERT_EQ(one->lost().size(), 1u);
  EXPECT_EQ(one->lost()[0].first, was.instance);
  const auto late = one->commit(was);
  ASSERT_FALSE(late) << "it was for the run that is over";
  EXPECT_EQ(late.error().reason, Reason::RemoteDied);
  EXPECT_TRUE(one->commit(two->self()));
}

TEST_F(PeersTest, AreNotMadeWithATokenThatOthersCanRead) {
  Settings settings = settings_of(1, 2);
  settings.net.token_file = write_token("open", "a token that all can read", 0644);
  EXPECT_THAT(PeerNodeUnderTest(settings).failure.message, HasSubstr("chmod 0600"));
  settings.net.token_file = write_token("short", "fifteen bytes..");
  EXPECT_THAT(PeerNodeUnderTest(settings).failure.message, HasSubstr("fewer than 16 bytes"));
  settings.net.token_file = folder_ + "/missing";
  EXPECT_THAT(PeerNodeUnderTest(settings).failure.message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace arcomm::test
