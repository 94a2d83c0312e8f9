// Links between two workers: messages in order, puts over the bulk streams, and what is told when
// one ends.
#include "daemon/exec/net/links/link_table.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/machine_pauses.h"
#include "tests/unit/daemon/exec/net/linked_pair.h"

namespace arcomm::test {
namespace {

struct KeepingListener final : LinkTable::Listener {
  Status message_came(Link& from, const net::FrameHeader& names,
                      const net::Message& message) override {
    const auto body = net::body_of<net::FailureBody>(message.body);
    came.push_back({names.seq, body.culprit});
    EXPECT_EQ(names.communicator, 77u);
    EXPECT_EQ(from.peer(), expected_peer);
    if (refuses) return error(ErrorCode::DataLoss, Reason::Corrupt, "the test does not like it");
    return {};
  }
  void link_ended(PeerId peer, const std::string& name, const Error& why) override {
    ended.push_back({peer, name + ": " + why.to_string()});
  }
  PeerId expected_peer = 0;
  bool refuses = false;
  std::vector<std::pair<std::uint64_t, Rank>> came;
  std::vector<std::pair<PeerId, std::string>> ended;
};

constexpr PeerId kA = 0xa, kB = 0xb;

enum class Drivers { Threads, Worker };  // of bulk streams

class LinkTableTest : public testing::TestWithParam<Drivers> {
 protected:
  std::pair<LinkSpec, LinkSpec> specs(std::uint32_t streams) {
    auto both = link_specs(wire_a_, kA, "node-a", wire_b_, kB, "node-b", streams);
    if (GetParam() == Drivers::Worker) {
      both.first.bulk_options.clear();
      both.second.bulk_options.clear();
    }
    return both;
  }
  void open(std::uint32_t streams) {
    auto [a, b] = specs(streams);
    heard_a_.expected_peer = kB;
    heard_b_.expected_peer = kA;
    ASSERT_TRUE(a_.open(std::move(a)).ok());
    ASSERT_TRUE(b_.open(std::move(b)).ok());
  }
  bool until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      a_.poll();
      if (b_reads_) b_.poll();
      std::this_thread::yield();
    }
    return true;
  }
  static void send(Links& links, PeerId to, std::uint64_t seq, Rank culprit = 0) {
    const net::FailureBody body{.code = 10, .culprit = culprit};
    links.send(to, net::MessageKind::Refused, {.communicator = 77, .epoch = 3, .seq = seq},
               {std::as_bytes(std::span(&body, 1))});
  }

  TestEndpoint wire_a_{1}, wire_b_{2};
  KeepingListener heard_a_, heard_b_;
  std::atomic<int> news_{0};
  LinkTable a_{heard_a_, [this] { ++news_; }}, b_{heard_b_, [this] { ++news_; }};
  bool b_reads_ = true;
};

TEST_P(LinkTableTest, OneWhoseStreamsCannotBeginHoldsUpNobody) {
  if (GetParam() == Drivers::Worker) return;  // no thread, nothing that cannot begin
  auto [a, b] = specs(6);
  a.bulk_options[5].cpu = 1023;
  const MachinePauses pauses;
  const auto opened = a_.open(std::move(a));
  // The peer does not read, and each stream would wait a tenth of a second for it.
  EXPECT_LT(pauses.age_ms(), 300 + pauses.most_ms());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("may not use CPU 1023"), std::string::npos);
  EXPECT_TRUE(a_.empty());
  EXPECT_TRUE(until([&] { return a_.is_over(); }));
}

TEST_P(LinkTableTest, MessagesArriveInOrderAndMoreThanAConnectionHoldsWait) {
  open(0);
  constexpr std::uint64_t kMany = 1000;
  for (std::uint64_t seq = 0; seq < kMany; ++seq) send(a_, kB, seq, static_cast<Rank>(seq % 64));
  EXPECT_TRUE(a_.is_sending());
  ASSERT_TRUE(until([&] { return heard_b_.came.size() == kMany; }));
  for (std::uint64_t seq = 0; seq < kMany; ++seq) {
    EXPECT_EQ(heard_b_.came[seq].first, seq);
    EXPECT_EQ(heard_b_.came[seq].second, static_cast<Rank>(seq % 64));
  }
  ASSERT_TRUE(until([&] { return !a_.is_sending(); }));
}

TEST_P(LinkTableTest, PutsGoOverTheBulkStreamsAndThreadsTellOfThem) {
  open(2);
  std::vector<std::byte> memory(65536), sent(65536, std::byte{5});
  std::array<net::SignalWord, 1> signals{};
  const net::RegionId region = b_.regions()->add(memory, signals, {77, 3}).value();
  net::OnLoan on_loan{1};
  const net::Frame put{.header = {.kind = net::FrameKind::Put,
                                  .communicator = 77,
                                  .epoch = 3,
                                  .region = region,
                                  .signal = 0,
                                  .add = 1},
                       .payload = sent};
  ASSERT_EQ(a_.post(kB, put, on_loan), net::Progress::Done);
  // Threads tell of what came, and of what was given back.
  const int news = GetParam() == Drivers::Threads ? 2 : 0;
  ASSERT_TRUE(
      until([&] { return signals[0].load() == 1 && on_loan.load() == 0 && news_.load() >= news; }));
  EXPECT_EQ(memory, sent);
  ASSERT_TRUE(b_.regions()->remove(region));
}

TEST_P(LinkTableTest, ALinkTellsHowFastItDeliversAndHowItsThreadsWait) {
  open(2);
  std::vector<std::byte> memory(65536), sent(65536, std::byte{5});
  std::array<net::SignalWord, 1> signals{};
  const net::RegionId region = b_.regions()->add(memory, signals, {77, 3}).value();
  net::OnLoan on_loan{0};
  for (std::uint64_t put = 1; put <= 64; ++put) {
    ++on_loan;
    ASSERT_EQ(a_.post(kB,
                      {.header = {.kind = net::FrameKind::Put,
                                  .communicator = 77,
                                  .epoch = 3,
                                  .region = region,
                                  .add = 1},
                       .payload = sent},
                      on_loan),
              net::Progress::Done);
    ASSERT_TRUE(until([&] { return signals[0].load() == put && on_loan.load() == 0; }));
  }
  // Threads look at their connections ten times a second.
  LinkSnapshot shot;
  ASSERT_TRUE(until([&] {
    shot = a_.snapshots().at(0);
    return shot.delivered_bytes_per_second > 0 &&
           (GetParam() == Drivers::Worker || (shot.spun_ns > 0 && shot.slept_ns > 0));
  }));
  EXPECT_GT(shot.sent_bytes, 64 * sent.size());
  if (GetParam() == Drivers::Worker) {
    EXPECT_EQ(shot.spun_ns + shot.slept_ns, 0u);
  }
  ASSERT_TRUE(b_.regions()->remove(region));
}

TEST_P(LinkTableTest, WithoutBulkStreamsPutsGoBehindTheMessages) {
  open(0);
  std::vector<std::byte> memory(64), sent(64, std::byte{5});
  std::array<net::SignalWord, 1> signals{};
  const net::RegionId region = b_.regions()->add(memory, signals, {77, 3}).value();
  net::OnLoan on_loan{1};
  send(a_, kB, 1);
  ASSERT_EQ(a_.post(kB,
                    {.header = {.kind = net::FrameKind::Put,
                                .communicator = 77,
                                .epoch = 3,
                                .region = region,
                                .add = 1},
                     .payload = sent},
                    on_loan),
            net::Progress::Done);
  ASSERT_TRUE(until([&] { return signals[0].load() == 1 && on_loan.load() == 0; }));
  EXPECT_EQ(heard_b_.came.size(), 1u);
  ASSERT_TRUE(b_.regions()->remove(region));
}

TEST_P(LinkTableTest, OneLinkToAPeerAtATime) {
  open(0);
  auto [a, b] = specs(0);
  const auto again = a_.open(std::move(a));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::AlreadyExists);
  EXPECT_NE(again.error().message.find("node-b"), std::string::npos);
}

TEST_P(LinkTableTest, AClosedLinkIsTheLastWordOfItsReasonToThePeer) {
  open(1);
  send(a_, kB, 1);
  EXPECT_TRUE(a_.close(kB, error(ErrorCode::Unavailable, Reason::RemoteDied, "it was silent")));
  EXPECT_FALSE(a_.close(kB, error(ErrorCode::Unavailable, Reason::RemoteDied, "again")));
  EXPECT_TRUE(a_.empty());
  ASSERT_TRUE(until([&] { return !heard_b_.ended.empty(); }));
  EXPECT_EQ(heard_b_.came.size(), 1u) << "what was sent before the end arrives";
  EXPECT_EQ(heard_b_.ended.front().first, kA);
  EXPECT_NE(heard_b_.ended.front().second.find("it was silent"), std::string::npos)
      << heard_b_.ended.front().second;
  EXPECT_TRUE(heard_a_.ended.empty());
  EXPECT_TRUE(b_.empty());
}

TEST_P(LinkTableTest, AMessageThatIsRefusedEndsTheLinkOnBothSides) {
  open(1);
  heard_b_.refuses = true;
  send(a_, kB, 1);
  ASSERT_TRUE(until([&] { return !heard_a_.ended.empty() && !heard_b_.ended.empty(); }));
  EXPECT_NE(heard_b_.ended.front().second.find("the test does not like it"), std::string::npos);
}

TEST_P(LinkTableTest, AStreamThatDiesTakesTheLinkAlong) {
  TestEndpoint other(2);
  auto [a, b] = specs(2);
  ASSERT_TRUE(a_.open(std::move(a)).ok());
  b.bulk.pop_back();  // the peer's end of one
  if (GetParam() == Drivers::Threads) b.bulk_options.pop_back();
  ASSERT_TRUE(b_.open(std::move(b)).ok());
  ASSERT_TRUE(until([&] { return !heard_a_.ended.empty(); }));
  EXPECT_EQ(heard_a_.ended.front().first, kB);
  ASSERT_TRUE(until([&] { return !heard_b_.ended.empty(); }));
}

TEST_P(LinkTableTest, APeerThatNeverReadsCostsABoundedAmountAndThenItsLink) {
  open(0);
  b_reads_ = false;
  std::uint64_t seq = 0;
  bool lacked_room = false;
  while (heard_a_.ended.empty() && seq < 1'000'000) {
    send(a_, kB, seq++);
    lacked_room = lacked_room || !a_.has_room(kB);
    const Link* link = a_.find(kB);
    if (link != nullptr) {
      ASSERT_LE(link->unsent_bytes(), Link::kMostUnsentBytes + net::kMostMessageBytes);
    }
    if (seq % 64 == 0) a_.poll();
  }
  ASSERT_EQ(heard_a_.ended.size(), 1u);
  EXPECT_TRUE(lacked_room);
  EXPECT_NE(heard_a_.ended.front().second.find("node node-b reads nothing"), std::string::npos)
      << heard_a_.ended.front().second;
}

INSTANTIATE_TEST_SUITE_P(, LinkTableTest, testing::Values(Drivers::Threads, Drivers::Worker),
                         [](const auto& drivers) {
                           return drivers.param == Drivers::Threads ? "Threads" : "Worker";
                         });

}  // namespace
}  // namespace arcomm::test
