// What transport/net/{connection,endpoint,receiver,regions}.h promise, of every transport.
#include <gmock/gmock.h>

#include "tests/conformance/net_fixture.h"

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
  EXPECT_EQ(a_.connection->flush(), Progress::Done);
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

TEST_P(NetTest, EndpointsOfOneNodeShareItsRegionsAndTheConnectionsKeepThem) {
  const auto regions = std::make_shared<Regions>();
  open(b_, 1, {.address = {}, .regions = regions});
  Side other;
  open(other, 2, {.address = {}, .regions = regions});
  EXPECT_EQ(&b_.endpoint->regions(), regions.get());
  EXPECT_EQ(&other.endpoint->regions(), regions.get());
  connect();
  b_.endpoint.reset();
  std::vector<std::byte> memory(10);
  std::vector<SignalWord> signals(1);
  const RegionId region = regions->add(memory, signals, {}).value();
  const auto payload = random_bytes(10, 14);
  post(a_, {.header = {.kind = FrameKind::Put, .region = region, .add = 1}, .payload = payload});
  ASSERT_TRUE(until([&] { return signals[0] == 1; }));
  EXPECT_EQ(memory, payload);
  EXPECT_TRUE(regions->remove(region));
}

TEST_P(NetTest, WhatComesForARegionThatIsNotThereOrAnothersIsDroppedAndTheStreamGoesOn) {
  connect();
  Regions& regions = b_.endpoint->regions();
  std::vector<std::byte> memory(kMostChunkBytes);
  std::vector<SignalWord> signals(1);
  const Regions::Owner owner{.communicator = 5, .epoch = 2};
  const RegionId gone = regions.add(memory, signals, owner).value();
  EXPECT_TRUE(regions.remove(gone));
  const RegionId there = regions.add(memory, signals, owner).value();
  const auto payload = random_bytes(kMostChunkBytes, 13);
  const auto put = [&](std::uint64_t communicator, std::uint32_t epoch, RegionId region) {
    const FrameHeader header{.kind = FrameKind::Put,
                             .communicator = communicator,
                             .epoch = epoch,
                             .region = region,
                             .add = 1};
    post(a_, {.header = header, .payload = payload});
    FrameHeader signal = header;
    signal.kind = FrameKind::Signal;
    post(a_, {.header = signal, .payload = {}});
  };
  put(5, 2, gone);
  put(5, 1, there);
  put(6, 2, there);
  put(5, 2, 0);
  put(5, 2, there ^ 1);
  put(5, 2, there ^ RegionId{1} << 20);
  put(5, 2, there ^ RegionId{1} << 63);
  post(a_, {.header = {.kind = FrameKind::Message}, .payload = {}});
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == 1; }));
  EXPECT_EQ(regions.dropped(), 14u);
  EXPECT_EQ(memory, std::vector<std::byte>(kMostChunkBytes));
  EXPECT_EQ(signals[0], 0u);
  put(5, 2, there);
  ASSERT_TRUE(until([&] { return signals[0] == 2; }));
  EXPECT_EQ(memory, payload);
  EXPECT_TRUE(regions.remove(there));
}

TEST_P(NetTest, APayloadThatIsChangedWhileItIsSentIsDamageOfItsRegionAndNothingElse) {
  connect();
  Regions& regions = b_.endpoint->regions();
  std::vector<std::byte> memory(1000), others_memory(1000);
  std::vector<SignalWord> signals(1), others_signals(1);
  const RegionId region = regions.add(memory, signals, {}).value();
  const RegionId other = regions.add(others_memory, others_signals, {}).value();
  auto clients = random_bytes(1000, 15);
  const auto others = random_bytes(1000, 16);
  const auto put = [&](RegionId into, std::uint64_t seq, const std::vector<std::byte>& payload) {
    Transfer transfer = 0;  // posted, and not sent before the next progress()
    ASSERT_EQ(a_.connection->post(
                  {.header = {.kind = FrameKind::Put, .seq = seq, .region = into, .add = 1},
                   .payload = payload},
                  transfer),
              Progress::Done);
  };
  put(other, 7, others);
  put(region, 8, clients);
  clients[500] ^= std::byte{1};
  ASSERT_TRUE(until([&] { return regions.damaged(region).count == 1; }));
  EXPECT_EQ(regions.damaged(region).first_seq, 8u);
  EXPECT_EQ(signals[0], 0u);
  put(other, 9, others);
  put(region, 10, clients);
  ASSERT_TRUE(until([&] { return others_signals[0] == 2 && signals[0] == 1; }));
  EXPECT_EQ(others_memory, others);
  EXPECT_EQ(memory, clients);
  EXPECT_EQ(regions.damaged(other).count, 0u);
  EXPECT_EQ(regions.take_news().damaged, 1u);
  EXPECT_TRUE(regions.remove(region));
  const RegionId successor = regions.add(memory, signals, {}).value();
  EXPECT_EQ(regions.damaged(successor).count, 0u) << "a region begins without damage";
  EXPECT_TRUE(regions.remove(successor));
  EXPECT_TRUE(regions.remove(other));
}

TEST_P(NetTest, AConnectionTellsWhatItHasCarried) {
  connect();
  const auto payload = random_bytes(100000, 19);
  post(a_, {.header = {.kind = FrameKind::Chunk}, .payload = payload});
  ASSERT_TRUE(until([&] { return b_.receiver.arrivals.size() == 1; }));
  EXPECT_GE(a_.connection->statistics().sent_bytes, 100000u + sizeof(FrameHeader));
  EXPECT_GE(b_.connection->statistics().received_bytes, 100000u + sizeof(FrameHeader));
  EXPECT_EQ(a_.connection->statistics().retransmitted_bytes, 0u);
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

TEST_P(NetTest, APutLandsInItsRegionBeforeItsSignalIsSeen) {
  connect();
  std::vector<std::byte> memory(300000, std::byte{0xee});
  std::vector<SignalWord> signals(4);
  const auto region = b_.endpoint->regions().add(memory, signals, {});
  ASSERT_TRUE(region.ok());
  const auto payload = random_bytes(kMostChunkBytes, 4);
  for (std::uint32_t i = 0; i < 2; ++i)
    post(a_, {.header = {.kind = FrameKind::Put,
                         .offset = 10 + i * kMostChunkBytes,
                         .region = *region,
                         .signal = 2,
                         .add = 3},
              .payload = payload});
  ASSERT_TRUE(until([&] {
    const std::uint64_t raised = signals[2].load();
    for (std::uint64_t i = 0; i < raised / 3; ++i)
      EXPECT_EQ(
          std::memcmp(memory.data() + 10 + i * kMostChunkBytes, payload.data(), payload.size()), 0);
    return raised == 6;
  }));
  EXPECT_EQ(memory[9], std::byte{0xee});
  EXPECT_EQ(memory[10 + 2 * kMostChunkBytes], std::byte{0xee});
  EXPECT_EQ(signals[0] + signals[1] + signals[3], 0u);
  EXPECT_EQ(b_.receiver.asked, 0u);

  post(a_, {.header = {.kind = FrameKind::Signal, .region = *region, .signal = 0, .add = 5},
            .payload = {}});
  ASSERT_TRUE(until([&] { return signals[0] == 5; }));
  EXPECT_TRUE(b_.endpoint->regions().remove(*region));
}

TEST_P(NetTest, AFrameThatComesTwiceOrNotAtAllEndsTheConnectionAndRaisesNoSignalForIt) {
  std::vector<std::byte> memory(100);
  std::vector<SignalWord> signals(1);
  const RegionId region = b_.endpoint->regions().add(memory, signals, {}).value();
  const std::vector<std::byte> first(100, std::byte{1}), second(100, std::byte{2});
  const auto put = [&](const std::vector<std::byte>& payload) {
    post(a_, {.header = {.kind = FrameKind::Put, .region = region, .add = 1}, .payload = payload});
  };
  const auto tamper_with_the_second = [&](Tampering how, const std::string& words) {
    a_.connection = nullptr;
    b_.connection = nullptr;
    signals[0] = 0;
    begin_at(net_->tampered_way_to(b_.endpoint->address()));
    stand();
    put(first);
    ASSERT_TRUE(until([&] { return signals[0] == 1; }));
    net_->tamper_next(how);
    put(second);
    put(first);
    ASSERT_TRUE(until_failed(b_));
    EXPECT_EQ(b_.connection->error().code, ErrorCode::DataLoss);
    EXPECT_EQ(b_.connection->error().reason, Reason::Corrupt);
    EXPECT_THAT(b_.connection->error().message, StartsWith("node-a ("));
    EXPECT_THAT(b_.connection->error().message, HasSubstr(words));
    ASSERT_TRUE(until([&] { return a_.progress() == Progress::Failed; }));
    EXPECT_THAT(a_.connection->error().message, HasSubstr(words)) << "the sender is told";
  };
  tamper_with_the_second(Tampering::Repeats,
                         "frame 2 of the stream (a put) came where frame 3 was expected: it was "
                         "repeated");
  EXPECT_EQ(signals[0], 2u);
  EXPECT_EQ(memory, second);
  tamper_with_the_second(Tampering::LeavesOut,
                         "frame 3 of the stream (a put) came where frame 2 was expected: frames "
                         "were lost or overtaken");
  EXPECT_EQ(signals[0], 1u);
  EXPECT_EQ(memory, first);
  EXPECT_TRUE(b_.endpoint->regions().remove(region));
}

TEST_P(NetTest, APutOutsideOfItsRegionTouchesNothingAndEndsTheConnection) {
  const auto payload = random_bytes(100, 5);
  const auto try_put = [&](const FrameHeader& header, Reason reason, const char* words) {
    a_.connection = nullptr;
    b_.connection = nullptr;
    connect();
    post(a_, {.header = header,
              .payload = header.kind == FrameKind::Put ? payload : std::span<const std::byte>()});
    ASSERT_TRUE(until_failed(b_));
    EXPECT_EQ(b_.connection->error().reason, reason);
    EXPECT_THAT(b_.connection->error().message, HasSubstr(words));
    EXPECT_THAT(b_.connection->error().message, StartsWith("node-a ("));
    // Who was wrong hears what it was.
    ASSERT_TRUE(until([&] { return a_.progress() == Progress::Failed; }));
    EXPECT_THAT(a_.connection->error().message, HasSubstr("what this daemon sent is wrong: "));
    EXPECT_THAT(a_.connection->error().message, HasSubstr(words));
  };
  std::vector<std::byte> memory(1000, std::byte{0xee});
  std::vector<SignalWord> signals(1);
  const RegionId region = b_.endpoint->regions().add(memory, signals, {}).value();
  using enum FrameKind;
  try_put({.kind = Put, .offset = 901, .region = region}, Reason::OutOfBounds,
          "region of 1000 bytes");
  try_put({.kind = Put, .offset = ~0ULL - 50, .region = region}, Reason::OutOfBounds,
          "a put of 100");
  try_put({.kind = Put, .region = region, .signal = 1, .add = 1}, Reason::OutOfBounds, "signal 1");
  try_put({.kind = Signal, .region = region, .signal = 7, .add = 1}, Reason::OutOfBounds,
          "signal 7");
  EXPECT_EQ(memory, std::vector<std::byte>(1000, std::byte{0xee}));
  EXPECT_EQ(signals[0], 0u);
  EXPECT_TRUE(b_.endpoint->regions().remove(region));
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

TEST_P(NetTest, WhereNobodyListensConnectingFailsAndSaysSo) {
  auto connection = a_.endpoint->connect(net_->nobody(1), "node-b", key_of(kSecret), answer());
  if (!connection) {
    EXPECT_EQ(connection.error().code, ErrorCode::Unavailable);
    return;
  }
  a_.connection = *std::move(connection);
  ASSERT_TRUE(until([&] { return a_.progress() == Progress::Failed; }));
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Unavailable);
  EXPECT_THAT(a_.connection->error().message, HasSubstr("refused"));
}

TEST_P(NetTest, AnUnknownKeyIsTurnedAwayAndToldSo) {
  begin(kSecret + 1);
  const auto payload = random_bytes(1000, 9);
  Transfer transfer = 0;
  EXPECT_EQ(
      a_.connection->post({.header = {.kind = FrameKind::Message}, .payload = payload}, transfer),
      Progress::Done);
  ASSERT_TRUE(until_failed(a_));
  EXPECT_EQ(b_.connection, nullptr);
  EXPECT_EQ(b_.endpoint->refused(), 1u);
  EXPECT_THAT(a_.connection->error().message, HasSubstr("an unknown key"));
}

TEST_P(NetTest, WhoAnswersWithAnotherSecretIsNotThePeerAndGetsNoFrame) {
  answer_[31] ^= std::byte{1};
  begin();
  const auto payload = random_bytes(1000, 18);
  Transfer transfer = 0;
  EXPECT_EQ(
      a_.connection->post({.header = {.kind = FrameKind::Message}, .payload = payload}, transfer),
      Progress::Done);
  ASSERT_TRUE(until_failed(a_));
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Unauthenticated);
  EXPECT_THAT(a_.connection->error().message, HasSubstr("look what listens at that address"));
  a_.connection.reset();
  ASSERT_TRUE(until([&] { return b_.connection != nullptr; }));
  ASSERT_TRUE(until_failed(b_));
  EXPECT_TRUE(b_.receiver.arrivals.empty());
}

TEST_P(NetTest, WhoHasNotAnsweredYetGetsNoFrameWhenItIsClosed) {
  accepts_ = false;
  begin();
  const auto payload = random_bytes(1000, 19);
  Transfer transfer = 0;
  EXPECT_EQ(
      a_.connection->post({.header = {.kind = FrameKind::Message}, .payload = payload}, transfer),
      Progress::Done);
  const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  ASSERT_TRUE(until([&] { return std::chrono::steady_clock::now() > later; }));
  a_.connection->close("it takes too long");
  EXPECT_EQ(a_.connection->is_open(), Progress::Failed);
  EXPECT_THAT(a_.connection->error().message, HasSubstr("it takes too long"));
  accepts_ = true;
  ASSERT_TRUE(until([&] { return b_.connection != nullptr; }));
  ASSERT_TRUE(until_failed(b_));
  EXPECT_TRUE(b_.receiver.arrivals.empty());
}

TEST_P(NetTest, WhoDoesNotGreetInTimeIsGivenUp) {
  a_.endpoint.reset();
  open(a_, 0, {.address = {}, .greeting_timeout = std::chrono::milliseconds(50)});
  begin();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (a_.progress() != Progress::Failed && std::chrono::steady_clock::now() < end) net_->step();
  EXPECT_EQ(a_.connection->error().reason, Reason::Timeout);
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Unavailable);
}

TEST_P(NetTest, ManyConnectionsOfOnePairStandSideBySide) {
  constexpr std::uint32_t kStreams = 8;
  std::vector<ConnectionPtr> there, back;
  for (std::uint32_t stream = 0; stream < kStreams; ++stream)
    there.push_back(
        a_.endpoint->connect(b_.endpoint->address(), "node-b", key_of(kSecret, stream), answer())
            .value());
  std::vector<KeepingReceiver> receivers(kStreams);
  KeepingReceiver unused;
  accepts_ = false;
  ASSERT_TRUE(until([&] {
    if (auto accepted = b_.endpoint->accept(check_key())) back.push_back(std::move(accepted));
    bool is_open = back.size() == kStreams;
    for (auto& connection : there) {
      connection->progress(unused);
      is_open &= connection->is_open() == Progress::Done;
    }
    for (auto& connection : back) connection->progress(unused);
    return is_open;
  }));
  const auto payload = random_bytes(70000, 11);
  Transfer transfer = 0;
  for (auto& connection : there)
    ASSERT_EQ(
        connection->post({.header = {.kind = FrameKind::Chunk}, .payload = payload}, transfer),
        Progress::Done);
  ASSERT_TRUE(until([&] {
    std::size_t arrived = 0;
    for (auto& connection : there) connection->progress(unused);
    for (std::size_t i = 0; i < kStreams; ++i) {
      back[i]->progress(receivers[i]);
      arrived += receivers[i].arrivals.size();
    }
    return arrived == kStreams;
  }));
  for (const auto& receiver : receivers) EXPECT_EQ(receiver.arrivals.at(0).payload, payload);
}

}  // namespace
}  // namespace arcomm::net
