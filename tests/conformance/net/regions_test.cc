// Memory that peers put into (transport/net/regions.h), of every transport: what lands in it, and
// what does not.
#include <gmock/gmock.h>

#include "tests/conformance/net/fixture.h"

namespace arcomm::net {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class NetRegionsTest : public NetTest {};

INSTANTIATE_TEST_SUITE_P(Net, NetRegionsTest, testing::ValuesIn(all_net_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(NetRegionsTest, EndpointsOfOneNodeShareItsRegionsAndTheConnectionsKeepThem) {
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

TEST_P(NetRegionsTest, WhatComesForARegionThatIsNotThereOrAnothersIsDroppedAndTheStreamGoesOn) {
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

TEST_P(NetRegionsTest, APayloadThatIsChangedWhileItIsSentIsDamageOfItsRegionAndNothingElse) {
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

TEST_P(NetRegionsTest, APutLandsInItsRegionBeforeItsSignalIsSeen) {
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

TEST_P(NetRegionsTest, AFrameThatComesTwiceOrNotAtAllEndsTheConnectionAndRaisesNoSignalForIt) {
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

TEST_P(NetRegionsTest, APutOutsideOfItsRegionTouchesNothingAndEndsTheConnection) {
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

}  // namespace
}  // namespace arcomm::net
