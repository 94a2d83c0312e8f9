// Links between the workers of daemons: made on demand, made again when they are lost, and closed
// when the peer is dead.
#include "tests/unit/daemon/control/peers/peer_nodes.h"
#include "transport/net/tcp/endpoint.h"

namespace arcomm::test {
namespace {

using ::testing::HasSubstr;

class NoRoomAtAll final : public net::Receiver {
 public:
  Result<std::byte*> place(const net::FrameHeader&) override {
    return static_cast<std::byte*>(nullptr);
  }
  Status arrived(const net::FrameHeader&, std::span<const std::byte>) override { return {}; }
  void abandoned(const net::FrameHeader&) override {}
};

class PeerLinksTest : public PeersTest {
 protected:
  void meet() {
    one_ = start(1, 2);
    two_ = start(2, 2);
    ASSERT_TRUE(eventually([&] { return one_->sees(address(2)) && two_->sees(address(1)); }));
  }
  void expect_link() {
    auto here = one_->ensure_link(two_->self()), there = two_->ensure_link(one_->self());
    const Status first = here.get(), second = there.get();
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_TRUE(second) << second.error().message;
  }
  static Status ask(PeerNodeUnderTest& node, const PeerNode& from,
                    const v1::ConnectRequest& request) {
    return node.on_loop([&] {
      Status status;
      node.peers().links().connect(from, request, [&](const Result<v1::ConnectReply>& reply) {
        if (!reply) status = reply.error();
      });
      return status;
    });
  }
  // As its peer does whose link is lost.
  Status ask_one_to_connect(std::uint64_t attempt) {
    v1::ConnectRequest request;
    request.set_worker("host:0");
    request.set_attempt(attempt);
    return ask(*one_, two_->self(), request);
  }
  const PeerLinks::Link& link_of_one() const {
    return one_->peers().links().links().begin()->second;
  }
  std::uint64_t attempt_of_one() {
    return one_->on_loop([&] { return link_of_one().attempt; });
  }
  bool one_has_link() {
    return one_->on_loop([&] { return link_of_one().state == PeerLinks::State::Up; });
  }

  std::unique_ptr<PeerNodeUnderTest> one_, two_;
};

TEST_F(PeerLinksTest, AreGivenToBothWorkersWithAllTheirStreams) {
  meet();
  expect_link();
  auto here = one_->worker().take_links(), there = two_->worker().take_links();
  ASSERT_EQ(here.size(), 1u);
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(here[0].peer, two_->self().instance);
  EXPECT_EQ(here[0].name, "node2");
  EXPECT_EQ(here[0].bulk.size(), 2u);
  EXPECT_EQ(there[0].bulk.size(), 2u);
  EXPECT_EQ(here[0].bulk_options.size(), 2u);
  EXPECT_NE(here[0].regions, nullptr);
  EXPECT_EQ(here[0].messages->is_open(), net::Progress::Done);
  EXPECT_THAT(here[0].messages->name(), HasSubstr("stream 0"));
}

TEST_F(PeerLinksTest, SendWithoutCopiesWhereThatWasMeasuredToBeFaster) {
  meet();
  auto tuning = std::make_shared<NetworkTuning>();
  tuning->put({.address = address(2),
               .latency_us = 10,
               .bytes_per_second = 1'000'000'000,
               .without_copies = true});
  one_->on_loop([&] {
    one_->peers().links().use_tuning(tuning);
    return 0;
  });
  expect_link();
  auto here = one_->worker().take_links(), there = two_->worker().take_links();
  const std::vector<std::byte> payload(net::kMostChunkBytes);
  for (net::Connection* const stream :
       {here.at(0).bulk.at(0).get(), there.at(0).bulk.at(0).get()}) {
    net::Frame frame;
    frame.header.kind = net::FrameKind::Chunk;
    frame.payload = payload;
    net::Transfer transfer = 0;
    ASSERT_EQ(stream->post(frame, transfer), net::Progress::Done);
    NoRoomAtAll receiver;
    (void)stream->progress(receiver);
  }
  EXPECT_GT(here[0].bulk[0]->statistics().uncopied_sends, 0u);
  EXPECT_EQ(there[0].bulk[0]->statistics().uncopied_sends, 0u) << "it has measured nothing";
}

TEST_F(PeerLinksTest, AreMadeOnceForAllThatAsk) {
  meet();
  auto first = one_->ensure_link(two_->self()), second = one_->ensure_link(two_->self());
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  EXPECT_TRUE(one_->ensure_link(two_->self()).get());
  EXPECT_EQ(one_->worker().take_links().size(), 1u);
}

TEST_F(PeerLinksTest, HaveAsManyStreamsAsTheSideThatHasFewer) {
  Settings settings = settings_of(1, 2);
  settings.net.streams = 7;
  one_ = start(settings);
  two_ = start(2, 2);
  expect_link();
  EXPECT_EQ(one_->worker().take_links().at(0).bulk.size(), 2u);
}

TEST_F(PeerLinksTest, AreMadeAgainWhicheverSideLostThem) {
  meet();
  expect_link();
  (void)one_->worker().take_links();
  (void)two_->worker().take_links();
  one_->lose_link(two_->self().instance);
  expect_link();
  EXPECT_EQ(one_->worker().take_links().size(), 1u);
  EXPECT_EQ(two_->worker().take_links().size(), 1u);
  ASSERT_FALSE(two_->worker().closed_links().empty()) << "it still had the old one";
  // The side that does not connect asks for it.
  two_->lose_link(one_->self().instance);
  const Status again = two_->ensure_link(one_->self()).get();
  EXPECT_TRUE(again) << again.error().message;
  EXPECT_EQ(two_->worker().take_links().size(), 1u);
}

TEST_F(PeerLinksTest, AreMadeAgainHoweverManyKeepAskingForThem) {
  meet();
  expect_link();
  two_->lose_link(one_->self().instance);
  // The side that does not connect asks for it, and is asked itself all the time.
  std::vector<std::future<Status>> asked;
  const PeerNode peer = one_->self();
  EXPECT_TRUE(eventually(
      [&] {
        asked.push_back(two_->ensure_link(peer));
        std::this_thread::sleep_for(milliseconds(50));
        return asked.front().wait_for(milliseconds(0)) == std::future_status::ready;
      },
      milliseconds(4000)));
  for (auto& one : asked) EXPECT_TRUE(one.get());
}

// On a way that loses packets a word to the peer may come seconds after the link that it asks for.
TEST_F(PeerLinksTest, AreNotTakenDownByAReminderOfAnEarlierOne) {
  meet();
  expect_link();
  two_->lose_link(one_->self().instance);
  expect_link();
  ASSERT_TRUE(eventually([&] { return one_has_link(); }));
  const std::uint64_t lost = 1 + one_->worker().closed_links().size();
  for (const std::uint64_t attempt : {std::uint64_t{0}, attempt_of_one() - 1}) {
    EXPECT_TRUE(ask_one_to_connect(attempt));
    EXPECT_TRUE(one_has_link()) << attempt;
  }
  EXPECT_LT(one_->worker().closed_links().size(), lost);
  EXPECT_TRUE(ask_one_to_connect(attempt_of_one()));
  EXPECT_EQ(one_->worker().closed_links().size(), lost) << "of this one";
}

TEST_F(PeerLinksTest, AreNotMadeAnewForARequestThatTheirOwnHasOvertaken) {
  meet();
  expect_link();
  v1::ConnectRequest late;
  late.set_worker("host:0");
  late.set_streams(2);
  late.add_addresses(host(1));
  late.set_attempt(attempt_of_one() - 1);
  const Status refused = ask(*two_, one_->self(), late);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("has given this attempt up"));
  EXPECT_TRUE(two_->worker().closed_links().empty());
}

TEST_F(PeerLinksTest, AreClosedWhenThePeerIsDead) {
  meet();
  expect_link();
  const PeerId peer = two_->self().instance;
  two_.reset();
  EXPECT_TRUE(eventually([&] { return !one_->worker().closed_links().empty(); }));
  EXPECT_EQ(one_->worker().closed_links()[0].first, peer);
  EXPECT_THAT(one_->worker().closed_links()[0].second, HasSubstr("node2"));
}

// The one that was frozen has missed nothing itself.
TEST_F(PeerLinksTest, AreClosedOnBothSidesWhereOneTookTheOtherForDead) {
  meet();
  expect_link();
  two_->freeze(milliseconds(1200));
  ASSERT_TRUE(eventually([&] { return !one_->worker().closed_links().empty(); }));
  ASSERT_TRUE(eventually([&] { return one_->sees(address(2)); }));
  ASSERT_EQ(two_->worker().closed_links().size(), 1u) << "whom one sees has let go of it";
  EXPECT_TRUE(eventually([&] { return two_->sees(address(1)); }));
  expect_link();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(one_->lost().size(), 1u) << "nobody takes it for dead again";
  EXPECT_EQ(two_->lost().size(), 1u);
}

TEST_F(PeerLinksTest, SayInTimeWhyTheyCannotBeMade) {
  meet();
  EXPECT_THAT(one_->ensure_link(two_->self(), milliseconds(500), "gpu").get().error().message,
              HasSubstr("has no worker \"gpu\""));
  const PeerNode was = two_->self();
  two_.reset();
  const Status status = one_->ensure_link(was, milliseconds(2000)).get();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("node2"));
}

TEST_F(PeerLinksTest, AreNotMadeOfStrangersConnections) {
  meet();
  // A connection that shows a key that nobody gave out.
  auto endpoint = net::TcpEndpoint::open({.address = {host(3), 0}}).value();
  auto stranger =
      endpoint->connect({host(2), 7401}, "node2", net::HelloKey{}, net::Secret{}).value();
  NoRoomAtAll receiver;
  EXPECT_TRUE(eventually([&] {
    (void)stranger->progress(receiver);
    return stranger->is_open() == net::Progress::Failed;
  }));
  EXPECT_THAT(stranger->error().message, HasSubstr("not known"));
  expect_link();
}

}  // namespace
}  // namespace arcomm::test
