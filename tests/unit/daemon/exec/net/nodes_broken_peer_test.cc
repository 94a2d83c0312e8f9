// A worker beside a peer whose daemon does what it should not: floods, nonsense, silence, a cut. It
// costs a bounded amount, the link at most, and clients that do not span the peer go on.
#include <gtest/gtest.h>

#include "daemon/exec/net/agreement/node_offers.h"
#include "tests/support/machine_pauses.h"
#include "tests/unit/daemon/exec/net/raw_peer.h"

namespace arcomm::test {
namespace {

class NodesBrokenPeerTest : public NodesTest {
 protected:
  static constexpr std::uint64_t kNumber = 7;

  void SetUp() override {
    start(1);
    nodes_.push_back(std::make_unique<TestNode>(1));  // for its name; its worker hears nothing
    auto [here, there] = link_specs(nodes_[0]->wire, nodes_[0]->peer, nodes_[0]->name,
                                    nodes_[1]->wire, nodes_[1]->peer, nodes_[1]->name, 0);
    open_link(*nodes_[0], std::move(here));
    peer_.use(std::move(there.messages));
    rank_ = &client(0);
  }
  void form() {
    Client& other = client(1);
    ASSERT_TRUE(form_on(0, {rank_, &other}, {0, 1}, kNumber).ok());
  }
  // A node more, which says nothing at all.
  void start_third() {
    nodes_.push_back(std::make_unique<TestNode>(2));
    auto [here, there] = link_specs(nodes_[0]->wire, nodes_[0]->peer, nodes_[0]->name,
                                    nodes_[2]->wire, nodes_[2]->peer, nodes_[2]->name, 0);
    open_link(*nodes_[0], std::move(here));
    third_.use(std::move(there.messages));
  }
  // As node 0 has counted it.
  std::uint64_t dropped(NetDrop why) {
    (void)inspect(0);
    return nodes_[0]->metrics().net_dropped[static_cast<std::size_t>(why)].value();
  }
  // The worker still serves who has nothing to do with the peer.
  void expect_alive() {
    Client& alone = client(0);
    CommunicatorSpec spec;
    spec.unique_id.fill(std::byte{99});
    spec.ranks = {{alone.id(), 0}};
    const auto formed = await<std::vector<MemberId>>(
        [&](auto done) { nodes_[0]->worker->form_communicator(spec, done); });
    ASSERT_TRUE(formed.ok());
    alone.member = formed->front();
    alone.call(5);
    EXPECT_EQ(code_of(next(alone)), ErrorCode::Ok);
  }
  bool until_over() {
    return until([&] { return peer_.is_over() || !nodes_[0]->links_lost().empty(); });
  }
  void expect_link_lost(const std::string& text) {
    ASSERT_TRUE(until([&] { return nodes_[0]->links_lost().size() == 1; }));
    EXPECT_EQ(nodes_[0]->links_lost().front().first, nodes_[1]->peer);
    EXPECT_NE(nodes_[0]->links_lost().front().second.find(text), std::string::npos)
        << nodes_[0]->links_lost().front().second;
  }

  RawPeer peer_, third_;
  Client* rank_ = nullptr;
};

TEST_F(NodesBrokenPeerTest, ACutEndsWhatSpansItAtOnce) {
  form();
  rank_->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1));
  peer_.cut();
  expect(next(*rank_), Reason::RemoteDied, "node node-b is gone");
  expect_link_lost("node-b");
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, ACutIsHeardOfByAWorkerThatSleeps) {
  form();
  std::this_thread::sleep_for(milliseconds(100));  // it sleeps
  const MachinePauses pauses;
  peer_.cut();
  expect_link_lost("node-b");
  EXPECT_LT(pauses.age_ms(), 400 + pauses.most_ms());
}

TEST_F(NodesBrokenPeerTest, AMessageThatIsNoneEndsTheLinkAndNamesTheFault) {
  form();
  peer_.send_bytes(kNumber, 0, std::vector<std::byte>(40, std::byte{0xff}));
  EXPECT_TRUE(until_over());
  expect_link_lost("a message of unknown kind 65535");
  EXPECT_TRUE(until([&] { return peer_.is_over(); }));
  EXPECT_NE(peer_.why().find("what this daemon sent is wrong: a message of unknown kind 65535"),
            std::string::npos)
      << peer_.why();
  rank_->call(5);
  EXPECT_NE(text_of(next(*rank_)).find("node-b"), std::string::npos);
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, AnOfferForARankOfAnotherNodeEndsTheLink) {
  form();
  peer_.offer(kNumber, 0, 0, 0);
  EXPECT_TRUE(until_over());
  expect_link_lost("node-b says what cannot be: it offers for rank 0");
  EXPECT_TRUE(until([&] { return peer_.is_over(); }));
  EXPECT_NE(peer_.why().find("it offers for rank 0"), std::string::npos) << peer_.why();
}

TEST_F(NodesBrokenPeerTest, AnOfferThatComesTwiceEndsTheLink) {
  form();
  peer_.offer(kNumber, 0);
  peer_.offer(kNumber, 0);
  EXPECT_TRUE(until_over());
  expect_link_lost("offers seq 0 twice");
}

// Graphs that are replayed in another order on each node: operations on GPUs have identities.
TEST_F(NodesBrokenPeerTest, WhatGraphsHoldInAnotherOrderIsNamedWithItsNode) {
  form();
  peer_.offer(kNumber, 0, 0, 1, 3);
  rank_->call(5);
  const auto completion = next(*rank_);
  EXPECT_EQ(reason_of(completion), Reason::Reordered) << text_of(completion);
  EXPECT_NE(text_of(completion).find("rank 1 (node-b)"), std::string::npos) << text_of(completion);
  EXPECT_NE(text_of(completion).find("number 3"), std::string::npos) << text_of(completion);
}

TEST_F(NodesBrokenPeerTest, AnOfferFarAheadEndsTheLink) {
  form();
  peer_.offer(kNumber, 1'000'000);
  EXPECT_TRUE(until_over());
  expect_link_lost("offers seq 1000000, and 0 is the oldest here");
}

// The others would run it, and their chunks be taken for those of the next one.
TEST_F(NodesBrokenPeerTest, ARefusalOfWhatItHasOfferedEndsTheLink) {
  form();
  nodes_[0]->executor.load()->holds = true;
  rank_->call(5);
  rank_->call(5);
  ASSERT_TRUE(has_taken(0, 0, 2));
  peer_.offer(kNumber, 0, 20);
  peer_.offer(kNumber, 1, 20);
  peer_.fail(net::MessageKind::Refused, kNumber, 1);
  EXPECT_TRUE(until_over());
  expect_link_lost("seq 1 is refused, which it had offered");
  nodes_[0]->executor.load()->holds = false;
  for (int i = 0; i < 2; ++i) EXPECT_NE(code_of(next(*rank_)), ErrorCode::Ok);
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, ALeaveBeforeWhatItHasOfferedEndsTheLink) {
  form();
  peer_.offer(kNumber, 0, 20);
  peer_.fail(net::MessageKind::Left, kNumber, 0);
  EXPECT_TRUE(until_over());
  expect_link_lost("rank 1 has left before seq 0, which it had offered");
}

TEST_F(NodesBrokenPeerTest, WhoFormsItsPartLateHearsThatItWasRevokedMeanwhile) {
  form();
  ring::WorkRequest request = rank_->request(5);
  request.timeout_ns = 50'000'000;
  rank_->submit(request);
  EXPECT_EQ(reason_of(next(*rank_)), Reason::Timeout);
  const auto has_heard = [&](int times) {
    return until([&] {
      peer_.progress();
      return peer_.heard(net::MessageKind::Revoked) == times;
    });
  };
  ASSERT_TRUE(has_heard(1));
  // The first that a node says when it has formed its part.
  const net::WindowBody window{.region = 1, .slots = 1, .slot_bytes = 1};
  peer_.send(net::MessageKind::Window, kNumber, 0, {bytes_of(window)});
  EXPECT_TRUE(has_heard(2));
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
}

TEST_F(NodesBrokenPeerTest, AFloodOfOffersEndsTheCommunicatorAndNotTheLink) {
  form();
  for (std::uint64_t seq = 0; seq < NodeOffers::kMostOfNode + 10; ++seq) {
    peer_.offer(kNumber, seq, 16);
    peer_.progress();
  }
  ASSERT_TRUE(until([&] {
    peer_.progress();
    return peer_.heard(net::MessageKind::Revoked) == 1;
  }));
  rank_->call(5);
  expect(next(*rank_), Reason::Revoked, "node node-b: it has offered 256 times");
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, InlineDataIsBoundedInBytes) {
  form();
  const std::size_t fits = NodeOffers::kMostBytesOfNode / net::kMostInlineBytes;
  for (std::uint64_t seq = 0; seq <= fits; ++seq) {
    peer_.offer(kNumber, seq, net::kMostInlineBytes);
    peer_.progress();
  }
  ASSERT_TRUE(until([&] {
    peer_.progress();
    return peer_.heard(net::MessageKind::Revoked) == 1;
  }));
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
}

// One with many communicators gets half of what there is for all, whatever its peers send for them.
TEST_F(NodesBrokenPeerTest, OffersAreKeptUpToTheirUsersShareOfAllCommunicators) {
  constexpr std::uint64_t kCommunicators = 20;
  const std::uint64_t share = Settings::Net{}.staging_bytes / OfferMemory::kPart / 2;
  const std::uint64_t fits = NodeOffers::kMostBytesOfNode / net::kMostInlineBytes;
  ASSERT_GT(kCommunicators * fits * net::kMostInlineBytes, share);
  std::vector<std::vector<Client*>> ranks;
  for (std::uint64_t number = 100; number < 100 + kCommunicators; ++number) {
    ranks.push_back({&client(0), &client(1)});
    ASSERT_TRUE(form_on(0, ranks.back(), {0, 1}, number).ok());
  }
  for (std::uint64_t number = 100; number < 100 + kCommunicators; ++number) {
    for (std::uint64_t seq = 0; seq < fits; ++seq) peer_.offer(number, seq, net::kMostInlineBytes);
  }
  ASSERT_TRUE(until([&] {
    peer_.progress();
    return inspect(0).communicators.back().state != "ready";
  }));
  ranks.back()[0]->call(5);
  expect(next(*ranks.back()[0]), Reason::Revoked, "bytes of offers under way");
  EXPECT_LE(peer_.heard(net::MessageKind::Revoked), 5);
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
  EXPECT_EQ(inspect(0).communicators.front().state, "ready");
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, WhatComesForCommunicatorsThatAreNotThereIsKeptUpToABound) {
  for (std::uint64_t number = 1000; number < 11'000; ++number) peer_.offer(number, 0);
  for (std::uint64_t seq = 0; seq < 1000; ++seq) peer_.offer(12'000, seq, net::kMostInlineBytes);
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
  EXPECT_TRUE(until([&] { return dropped(NetDrop::TooMany) > 900; }));
  EXPECT_EQ(dropped(NetDrop::NeverFormed), 0u);
  peer_.cut();
  EXPECT_TRUE(until([&] { return dropped(NetDrop::NeverFormed) > 10'000; }))
      << "who sent it is gone";
  expect_alive();
}

TEST_F(NodesBrokenPeerTest, FramesOfAnotherEpochAreDropped) {
  form();
  const net::FailureBody body{.code = 10, .reason = 7, .culprit = 1};
  peer_.epoch = 2;
  peer_.send(net::MessageKind::Revoked, kNumber, 0, {bytes_of(body)});
  peer_.epoch = 1;
  peer_.send(net::MessageKind::Refused, kNumber, 0, {bytes_of(body)});
  rank_->call(5);
  expect(next(*rank_), Reason::RemoteAborted, "node-b");  // and not Revoked
  EXPECT_EQ(dropped(NetDrop::OtherEpoch), 1u);
}

TEST_F(NodesBrokenPeerTest, APeerThatAgreesAndThenIsSilentCostsTheDeadline) {
  form();
  ring::WorkRequest request = rank_->request(5);
  request.timeout_ns = 200'000'000;
  rank_->submit(request);
  const auto completion = next(*rank_);
  expect(completion, Reason::Timeout, "rank 1 (on node-b) did not call seq 0");
  EXPECT_EQ(completion.culprit_rank, 1);
  EXPECT_TRUE(until([&] {
    peer_.progress();
    return peer_.heard(net::MessageKind::Revoked) == 1;
  }));
  EXPECT_EQ(peer_.heard(net::MessageKind::Offer), 1);
  EXPECT_EQ(peer_.heard(net::MessageKind::Waiting), 1);
}

// It says how long its ranks wait, and then it is frozen: nobody here waits for longer.
TEST_F(NodesBrokenPeerTest, TheTimeThatAPeersRanksHaveLeftIsTheOperationsHereToo) {
  Client &absent = client(0, 950), &other = client(1);
  const std::vector<Client*> ranks = {rank_, &absent, &other};
  ASSERT_TRUE(form_on(0, ranks, {0, 0, 1}, kNumber).ok());
  const auto since = std::chrono::steady_clock::now();
  peer_.offer(kNumber, 0, 0, 2, 0, milliseconds(300));
  ASSERT_TRUE(has_taken(0, 0, 0));
  rank_->call(5);
  const auto completion = next(*rank_);
  expect(completion, Reason::Timeout, "rank 1 (pid 950 on node-a) did not call seq 0");
  EXPECT_EQ(completion.culprit_rank, 1);
  const auto waited = std::chrono::steady_clock::now() - since;
  EXPECT_GE(waited, milliseconds(300));
  EXPECT_LT(waited, std::chrono::seconds(10)) << "its own deadline is far away";
}

TEST_F(NodesBrokenPeerTest, ADeadlineThatIsHeardOfAfterTheCallCountsAsWell) {
  start_third();
  Client &second = client(1), &third = client(2);
  const std::vector<Client*> ranks = {rank_, &second, &third};
  ASSERT_TRUE(form_on(0, ranks, {0, 1, 2}, kNumber).ok());
  rank_->call(5);
  ASSERT_TRUE(has_taken(0, 0, 1));
  peer_.offer(kNumber, 0, 0, 1, 0, milliseconds(100));
  expect(next(*rank_), Reason::Timeout, "rank 2 (on node-c) did not call seq 0");
}

TEST_F(NodesBrokenPeerTest, RefusalsForSomebodyWhoDoesNotReadAreBounded) {
  form();
  // Each of them is told to the peer, who reads nothing.
  const auto is_revoked = [&] {
    const std::lock_guard lock(nodes_[0]->mutex);
    return !nodes_[0]->revoked.empty();
  };
  for (int refused = 0; refused < 1'000'000 && !is_revoked(); ++refused) {
    ring::WorkRequest wrong = rank_->request(5);
    wrong.send_buffer = 0;
    rank_->submit(wrong);
    ASSERT_EQ(reason_of(next(*rank_)), Reason::BadValue);
  }
  rank_->call(5);
  expect(next(*rank_), Reason::Revoked, "refused faster than other nodes hear");
  EXPECT_TRUE(nodes_[0]->links_lost().empty());
  expect_alive();
}

}  // namespace
}  // namespace arcomm::test
