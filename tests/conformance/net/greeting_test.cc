// How connections come to stand, of every transport: who is turned away, and who is given up.
#include <gmock/gmock.h>

#include "tests/conformance/net/fixture.h"

namespace arcomm::net {
namespace {

using testing::HasSubstr;

class NetGreetingTest : public NetTest {};

INSTANTIATE_TEST_SUITE_P(Net, NetGreetingTest, testing::ValuesIn(all_net_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(NetGreetingTest, WhereNobodyListensConnectingFailsAndSaysSo) {
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

TEST_P(NetGreetingTest, AnUnknownKeyIsTurnedAwayAndToldSo) {
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

TEST_P(NetGreetingTest, WhoAnswersWithAnotherSecretIsNotThePeerAndGetsNoFrame) {
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

TEST_P(NetGreetingTest, WhoHasNotAnsweredYetGetsNoFrameWhenItIsClosed) {
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

TEST_P(NetGreetingTest, WhoDoesNotGreetInTimeIsGivenUp) {
  a_.endpoint.reset();
  open(a_, 0, {.address = {}, .greeting_timeout = std::chrono::milliseconds(50)});
  begin();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (a_.progress() != Progress::Failed && std::chrono::steady_clock::now() < end) net_->step();
  EXPECT_EQ(a_.connection->error().reason, Reason::Timeout);
  EXPECT_EQ(a_.connection->error().code, ErrorCode::Unavailable);
}

TEST_P(NetGreetingTest, ManyConnectionsOfOnePairStandSideBySide) {
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
