// Two daemons that measure the way between them, over real connections.
#include "daemon/control/peers/links/link_survey.h"
#include "tests/unit/daemon/control/peers/peer_nodes.h"

namespace arcomm::test {
namespace {

using ::testing::HasSubstr;

class LinkProbesTest : public PeersTest {
 protected:
  void meet() {
    one_ = start(1, 2);
    two_ = start(2, 2);
    ASSERT_TRUE(eventually([&] { return one_->sees(address(2)) && two_->sees(address(1)); }));
  }
  std::future<Result<LinkSpeed>> measure(PeerNodeUnderTest& from, const PeerNode& to,
                                         milliseconds limit = milliseconds(8000)) {
    auto answer = std::make_shared<std::promise<Result<LinkSpeed>>>();
    from.on_loop([&] {
      from.peers().links().probes().measure(
          to, false, EventLoop::Clock::now() + limit,
          [answer](const Result<LinkSpeed>& speed) { answer->set_value(speed); });
      return 0;
    });
    return answer->get_future();
  }

  std::unique_ptr<PeerNodeUnderTest> one_, two_;
};

TEST_F(LinkProbesTest, FindLatencyAndThroughputFromEitherSide) {
  meet();
  for (const auto& [from, to] : {std::pair(one_.get(), two_.get()), {two_.get(), one_.get()}}) {
    // The other side may still be closing the last one.
    Result<LinkSpeed> speed{LinkSpeed{}};
    EXPECT_TRUE(eventually(
        [&, from = from, to = to] {
          speed = measure(*from, to->self()).get();
          return bool(speed);
        },
        milliseconds(20'000)))
        << speed.error().message;
    EXPECT_GT(speed->latency, std::chrono::nanoseconds(500));
    EXPECT_LT(speed->latency, milliseconds(50));
    EXPECT_GT(speed->bytes_per_second, 1'000'000u);
    EXPECT_EQ(speed->latency, speed->round_trip / 2);
    EXPECT_GE(speed->round_trip_p99, speed->round_trip);
    EXPECT_EQ(std::min(speed->sent_per_second, speed->received_per_second),
              speed->bytes_per_second);
  }
  EXPECT_TRUE(one_->worker().take_links().empty()) << "no worker's link is touched";
}

TEST_F(LinkProbesTest, AreMadeOneAtATime) {
  meet();
  auto first = measure(*one_, two_->self());
  const Result<LinkSpeed> second = measure(*one_, two_->self()).get();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::FailedPrecondition);
  EXPECT_THAT(second.error().message, HasSubstr("is measuring the way to node2"));
  // The peer is taken, too, as long as it lasts, even where it asks before it has heard: of two
  // that ask each other the one with the smaller address goes first.
  const Result<LinkSpeed> back = measure(*two_, one_->self()).get();
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("one at a time"));
  const Result<LinkSpeed> done = first.get();
  EXPECT_TRUE(done) << done.error().message;
}

TEST_F(LinkProbesTest, EndSoonWhenTheyAreCancelled) {
  meet();
  auto answer = measure(*one_, two_->self());
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(milliseconds(50));
  one_->on_loop([&] {
    one_->peers().links().probes().cancel();
    return 0;
  });
  const Result<LinkSpeed> speed = answer.get();
  ASSERT_FALSE(speed);
  EXPECT_EQ(speed.error().code, ErrorCode::Cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(3000));
}

TEST_F(LinkProbesTest, EndInTimeWithAPeerThatDoesNotMove) {
  meet();
  const PeerNode to = two_->self();
  two_->freeze(milliseconds(1500));
  const auto begun = std::chrono::steady_clock::now();
  const Result<LinkSpeed> speed = measure(*one_, to, milliseconds(300)).get();
  EXPECT_FALSE(speed);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(1400));
}

TEST_F(LinkProbesTest, EndWithTheDaemonThatTakesPart) {
  meet();
  auto answer = measure(*one_, two_->self());
  std::this_thread::sleep_for(milliseconds(100));
  two_.reset();
  EXPECT_FALSE(answer.get());
  auto again = measure(*one_, one_->find(address(2)), milliseconds(300));
  EXPECT_FALSE(again.get());
  // The one that asks may go, too, and no answer comes.
  two_ = start(2, 2);
  ASSERT_TRUE(eventually([&] { return one_->sees(address(2)); }));
  auto left = measure(*one_, two_->self());
  std::this_thread::sleep_for(milliseconds(100));
  one_.reset();
}

TEST_F(LinkProbesTest, SurveyAllOfTheListAndSayWhoCouldNotBeMeasured) {
  one_ = start(1, 3);
  two_ = start(2, 3);
  ASSERT_TRUE(eventually([&] { return one_->sees(address(2)) && two_->sees(address(1)); }));
  auto loop = one_->loop();
  LinkSurvey survey(loop, std::make_shared<Peers*>(&one_->peers()));
  int told = 0;
  const auto links = survey.run(
      {}, [&](double, const SurveyedLink&) { ++told; }, [] { return false; });
  ASSERT_TRUE(links) << links.error().message;
  ASSERT_EQ(links->size(), 2u);
  EXPECT_EQ(told, 2);
  EXPECT_TRUE((*links)[0].status) << (*links)[0].status.error().message;
  EXPECT_EQ((*links)[0].figures.name, "node2");
  EXPECT_GT((*links)[0].figures.latency_us, 0);
  const LinkSpeed& copying = (*links)[0].with_copies;
  const LinkSpeed& uncopied = (*links)[0].without_copies;
  EXPECT_GT(copying.bytes_per_second, 0u);
  EXPECT_GT(uncopied.bytes_per_second, 0u) << "this kernel can";
  EXPECT_EQ((*links)[0].figures.bytes_per_second,
            ((*links)[0].figures.without_copies ? uncopied : copying).bytes_per_second);
  EXPECT_FALSE((*links)[1].status);
  EXPECT_EQ((*links)[1].figures.address, address(3));

  const auto unknown = survey.run(
      {"10.9.9.9:1"}, [](double, const SurveyedLink&) {}, [] { return false; });
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::NotFound);
  const auto stopped = survey.run(
      {}, [](double, const SurveyedLink&) {}, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::Cancelled);
}

}  // namespace
}  // namespace arcomm::test
