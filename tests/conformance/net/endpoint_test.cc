// What transport/net/{connection,endpoint,receiver}.h promise of a connection that stands, of every
// transport.
#include <gmock/gmock.h>

#include "tests/conformance/net/fixture.h"

namespace arcomm::net {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

INSTANTIATE_TEST_SUITE_P(Net, NetTest, testing::ValuesIn(all_net_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(NetTest, MessagesArriveWholeAndInOrderWithWhatTheirHeadersSay) {
  connect();
  std::vector<std::vector<std::byte>> payloads;
  for (std::uint64_t i = 0; i < 300; ++i)
    payloads.push_back(random_bytes(i * 53 % kMostMessageBytes, i));
  payloads.push_back(random_bytes(kMostMessageBytes, 1));
  for (std::uint64_t i = 0; i < payloads.size(); ++i)
    post(a_,
         {.header =
              {.kind = FrameKind::Message, .communicator = 5, .epoch = 6, .seq = i, .offset = 9},
          .payload = payloads[i]});
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == payloads.size(); }));
  for (std::uint64_t i = 0; i < payloads.size(); ++i) {
    const auto& [header, payload] = b_.receiver.arrivals[i];
    EXPECT_EQ(payload, payloads[i]) << i;
    EXPECT_EQ(header.kind, FrameKind::Message);
    EXPECT_EQ(header.communicator, 5u);
    EXPECT_EQ(header.epoch, 6u);
    EXPECT_EQ(header.seq, i);
    EXPECT_EQ(header.offset, 9u);
  }
}

TEST_P(NetTest, ChunksGoBothWaysAtOnce) {
  connect();
  constexpr std::size_t kChunks = 40;
  const auto there = random_bytes(kMostChunkBytes, 1);
  const auto back = random_bytes(kMostChunkBytes - 3, 2);
  std::size_t sent_there = 0, sent_back = 0;
  Transfer last = 0;
  ASSERT_TRUE(until([&] {
    const auto chunk = [](std::size_t n, const std::vector<std::byte>& payload) {
      return Frame{.header = {.kind = FrameKind::Chunk, .seq = n}, .payload = payload};
    };
    if (sent_there < kChunks &&
        a_.connection->post(chunk(sent_there, there), last) == Progress::Done)
      ++sent_there;
    if (sent_back < kChunks && b_.connection->post(chunk(sent_back, back), last) == Progress::Done)
      ++sent_back;
    return a_.receiver.arrivals.size() == kChunks && b_.receiver.arrivals.size() == kChunks;
  }));
  for (std::size_t i = 0; i < kChunks; ++i) {
    EXPECT_EQ(b_.receiver.arrivals[i].payload, there);
    EXPECT_EQ(a_.receiver.arrivals[i].payload, back);
    EXPECT_EQ(a_.receiver.arrivals[i].header.seq, i);
  }
}

TEST_P(NetTest, APayloadIsTheSendersAgainWhenItsTransferIsDone) {
  connect();
  std::vector<std::byte> payload(1000, std::byte{1});
  for (int i = 0; i < 50; ++i) {
    std::fill(payload.begin(), payload.end(), static_cast<std::byte>(i));
    const Transfer transfer = post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload});
    ASSERT_TRUE(until([&] { return a_.connection->test(transfer) == Progress::Done; }));
  }
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == 50; }));
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(b_.receiver.arrivals[static_cast<std::size_t>(i)].payload,
              std::vector<std::byte>(1000, static_cast<std::byte>(i)));
}

TEST_P(NetTest, APayloadThatIsDoneMayBeChangedThoughThePeerHadNoRoomForIt) {
  connect();
  b_.receiver.has_room = false;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<Transfer> transfers;
  for (std::uint64_t i = 0; i < 40; ++i) payloads.push_back(random_bytes(kMostChunkBytes, i));
  for (const auto& payload : payloads)
    transfers.push_back(post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload}));
  // Fewer than a connection holds. Changed as soon as they are free, which the peer must not see.
  b_.receiver.has_room = true;
  std::size_t free = 0;
  ASSERT_TRUE(until([&] {
    while (free < transfers.size() && a_.connection->test(transfers[free]) == Progress::Done)
      std::ranges::fill(payloads[free++], std::byte{0xff});
    return b_.receiver.arrivals.size() == payloads.size() && free == payloads.size();
  }));
  for (std::size_t i = 0; i < payloads.size(); ++i)
    EXPECT_EQ(b_.receiver.arrivals[i].payload, random_bytes(kMostChunkBytes, i));
  EXPECT_EQ(b_.receiver.given_back, 0u);
  EXPECT_EQ(a_.connection->statistics().uncopied_sends > 0, GetParam().sends_without_copies);
}

TEST_P(NetTest, AReceiverWithoutRoomHoldsTheSenderAndLosesNothing) {
  connect();
  b_.receiver.has_room = false;
  const auto payload = random_bytes(kMostChunkBytes, 3);
  const Frame chunk{.header = {.kind = FrameKind::Chunk}, .payload = payload};
  // More than any buffer in between holds.
  std::size_t posted = 0;
  Transfer transfer = 0;
  for (int quiet = 0; quiet < 2000; ++quiet) {
    if (a_.connection->post(chunk, transfer) == Progress::Done) {
      ++posted;
      quiet = 0;
    }
    a_.progress();
    b_.progress();
    net_->step();
  }
  EXPECT_EQ(a_.connection->post(chunk, transfer), Progress::Again);
  EXPECT_EQ(a_.connection->flush(), Progress::Again);
  EXPECT_GT(b_.receiver.asked, 1u);
  EXPECT_TRUE(b_.receiver.arrivals.empty());

  b_.receiver.has_room = true;
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == posted; }));
  for (const auto& arrival : b_.receiver.arrivals) EXPECT_EQ(arrival.payload, payload);
  // That the kernel needs the bytes no more, which it sent without a copy, it may tell later.
  EXPECT_TRUE(until([&] { return a_.connection->flush() == Progress::Done; }));
}

TEST_P(NetTest, AReceiverWithoutRoomIsNoDeadPeer) {
  const auto patience = std::chrono::milliseconds(200);
  a_.endpoint.reset();
  b_.endpoint.reset();
  open(a_, 0, {.address = {}, .peer_timeout = patience});
  open(b_, 1, {.address = {}, .peer_timeout = patience});
  connect();
  b_.receiver.has_room = false;
  const auto payload = random_bytes(kMostChunkBytes, 12);
  Transfer transfer = 0;
  std::size_t posted = 0;
  const auto end = std::chrono::steady_clock::now() + 4 * patience;
  while (std::chrono::steady_clock::now() < end) {
    const Frame chunk{.header = {.kind = FrameKind::Chunk}, .payload = payload};
    posted += a_.connection->post(chunk, transfer) == Progress::Done ? 1 : 0;
    ASSERT_NE(a_.progress(), Progress::Failed) << a_.connection->error().message;
    ASSERT_NE(b_.progress(), Progress::Failed) << b_.connection->error().message;
    net_->step();
  }
  b_.receiver.has_room = true;
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == posted; }));
}

TEST_P(NetTest, APeerThatHadNothingToAnswerForLongIsNoDeadPeer) {
  const auto patience = std::chrono::milliseconds(200);
  a_.endpoint.reset();
  b_.endpoint.reset();
  open(a_, 0, {.address = {}, .peer_timeout = patience});
  open(b_, 1, {.address = {}, .peer_timeout = patience});
  connect();
  const auto payload = random_bytes(100, 13);
  const Frame message{.header = {.kind = FrameKind::Message}, .payload = payload};
  for (int i = 0; i < 20; ++i) {  // both ways, after which the kernel acknowledges late
    post(i % 2 == 0 ? a_ : b_, message);
    ASSERT_TRUE(until([&] {
      return a_.receiver.arrivals.size() + b_.receiver.arrivals.size() == std::size_t(i) + 1;
    }));
  }
  std::this_thread::sleep_for(2 * patience);
  post(a_, message);
  const auto end = std::chrono::steady_clock::now() + patience / 10;
  while (std::chrono::steady_clock::now() < end)
    ASSERT_NE(a_.progress(), Progress::Failed) << a_.connection->error().message;
  EXPECT_TRUE(until([&] { return b_.receiver.arrivals.size() == 11; }));
}

TEST_P(NetTest, ASignalNeedsNoMemory) {
  connect();
  std::vector<SignalWord> signals(1);
  const RegionId region = b_.endpoint->regions().add({}, signals, {}).value();
  post(a_, {.header = {.kind = FrameKind::Signal, .region = region, .add = 2}, .payload = {}});
  ASSERT_TRUE(until([&] { return signals[0] == 2; }));
  EXPECT_TRUE(b_.endpoint->regions().remove(region));
}

TEST_P(NetTest, AConnectionTellsWhatItHasCarried) {
  connect();
  const auto payload = random_bytes(100000, 19);
  post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload});
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == 1; }));
  const LinkStatistics sent = a_.connection->statistics();
  EXPECT_GE(sent.sent_bytes, 100000u + sizeof(FrameHeader) + sent.retransmitted_bytes);
  EXPECT_EQ(sent.retransmitted_bytes == 0, sent.retransmits == 0);
  EXPECT_TRUE(GetParam().may_resend || sent.retransmitted_bytes == 0);
  EXPECT_GE(b_.connection->statistics().received_bytes, 100000u + sizeof(FrameHeader));
  b_.connection.reset();
  accepts_ = false;
  ASSERT_TRUE(until_failed(a_));
  EXPECT_EQ(a_.connection->statistics(), LinkStatistics());
}

TEST_P(NetTest, AMessageThatIsChangedWhileItIsSentEndsTheConnection) {
  connect();
  auto payload = random_bytes(1000, 17);
  Transfer transfer = 0;
  ASSERT_EQ(
      a_.connection->post({.header = {.kind = FrameKind::Message}, .payload = payload}, transfer),
      Progress::Done);
  payload[0] ^= std::byte{1};
  ASSERT_TRUE(until_failed(b_));
  EXPECT_EQ(b_.connection->error().reason, Reason::Corrupt);
  EXPECT_TRUE(b_.receiver.arrivals.empty());
}

TEST_P(NetTest, AReceiverThatRefusesEndsTheConnectionWithItsReason) {
  connect();
  b_.receiver.refusal = error(ErrorCode::FailedPrecondition, Reason::Revoked, "epoch 3 is over");
  post(a_, {.header = {.kind = FrameKind::Message}, .payload = {}});
  ASSERT_TRUE(until_failed(b_));
  EXPECT_EQ(b_.connection->error().reason, Reason::Revoked);
  EXPECT_THAT(b_.connection->error().message, HasSubstr("epoch 3 is over"));
  ASSERT_TRUE(until_failed(a_));
}

TEST_P(NetTest, AGoodbyeComesAfterWhatWasPostedAndSaysWhy) {
  connect();
  const auto payload = random_bytes(kMostChunkBytes, 6);
  for (int i = 0; i < 20; ++i) post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload});
  a_.connection->close("the daemon shuts down");
  Transfer transfer = 0;
  EXPECT_EQ(
      a_.connection->post({.header = {.kind = FrameKind::Chunk}, .payload = payload}, transfer),
      Progress::Failed);
  ASSERT_TRUE(until_failed(b_));
  EXPECT_EQ(b_.receiver.arrivals.size(), 20u);
  EXPECT_EQ(b_.connection->error().code, ErrorCode::Aborted);
  EXPECT_THAT(b_.connection->error().message, HasSubstr("the daemon shuts down"));
  ASSERT_TRUE(until([&] { return a_.progress() == Progress::Failed; }));
  EXPECT_EQ(a_.connection->flush(), Progress::Done);
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Cancelled);
}

TEST_P(NetTest, APeerThatGoesAwayIsNamedWithItsAddressStreamAndRail) {
  connect();
  b_.connection.reset();
  b_.endpoint.reset();
  ASSERT_TRUE([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (a_.progress() != Progress::Failed) {
      if (std::chrono::steady_clock::now() > end) return false;
      net_->step();
    }
    return true;
  }());
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Unavailable);
  EXPECT_EQ(a_.connection->error().reason, Reason::RemoteDied);
  EXPECT_THAT(a_.connection->error().message, StartsWith("node-b ("));
  EXPECT_THAT(a_.connection->error().message, HasSubstr("stream 0 over rail 0: "));
  Transfer transfer = 0;
  EXPECT_EQ(a_.connection->post({}, transfer), Progress::Failed);
}

TEST_P(NetTest, APlaceIsGivenBackWhenTheConnectionEndsInTheMiddle) {
  connect();
  b_.receiver.has_room = false;
  const auto payload = random_bytes(kMostChunkBytes, 8);
  for (int i = 0; i < 30; ++i) post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload});
  b_.receiver.has_room = true;
  ASSERT_TRUE(until([&] { return b_.receiver.placed > 0; }));
  a_.connection.reset();
  ASSERT_TRUE(until_failed(b_));
  EXPECT_EQ(b_.receiver.placed, b_.receiver.arrivals.size() + b_.receiver.given_back);
}

}  // namespace
}  // namespace arcomm::net
