// The faults that a LoopbackNetwork makes, as connections see them.
#include <gmock/gmock.h>

#include <optional>
#include <vector>

#include "transport/net/loopback/endpoint.h"
#include "transport/net/loopback/network.h"

namespace arcomm::net {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class OrderReceiver final : public Receiver {
 public:
  explicit OrderReceiver(std::vector<std::uint64_t>& seqs) : seqs_(seqs) {}
  Result<std::byte*> place(const FrameHeader& header) override {
    memory_.resize(header.length + 1);
    return memory_.data();
  }
  Status arrived(const FrameHeader& header, std::span<const std::byte>) override {
    seqs_.push_back(header.seq);
    return {};
  }
  void abandoned(const FrameHeader&) override {}

 private:
  std::vector<std::uint64_t>& seqs_;
  std::vector<std::byte> memory_;
};

class LoopbackNetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    one_ = LoopbackEndpoint::open(network_, {.address = {"one", 0}}).value();
    other_ = LoopbackEndpoint::open(network_, {.address = {"other", 0}}).value();
  }
  // A pair of ends, open.
  std::pair<ConnectionPtr, ConnectionPtr> connect() {
    ConnectionPtr there = one_->connect(other_->address(), "other", {}, {}).value();
    ConnectionPtr back;
    for (int i = 0; i < 100 && there->is_open() == Progress::Again; ++i) {
      network_.advance(milliseconds(1));
      if (!back)
        back =
            other_->accept([](const HelloKey&) -> Result<Guest> { return Guest{.peer = "one"}; });
      there->progress(receiver_);
    }
    EXPECT_EQ(there->is_open(), Progress::Done);
    return {std::move(there), std::move(back)};
  }
  void post(Connection& connection, std::uint64_t seq) {
    Transfer transfer = 0;
    ASSERT_EQ(connection.post({.header = {.kind = FrameKind::Message, .seq = seq}, .payload = {}},
                              transfer),
              Progress::Done);
    connection.progress(receiver_);
  }

  LoopbackNetwork network_{3};
  std::unique_ptr<Endpoint> one_, other_;
  std::vector<std::uint64_t> seqs_;
  OrderReceiver receiver_{seqs_};
};

TEST_F(LoopbackNetworkTest, AFrameArrivesAfterItsDelayByTheNetworksClock) {
  auto [there, back] = connect();
  network_.set_weather({.least_delay = milliseconds(200), .most_delay = milliseconds(200)});
  post(*there, 1);
  network_.advance(milliseconds(199));
  back->progress(receiver_);
  EXPECT_TRUE(seqs_.empty());
  network_.advance(milliseconds(2));
  back->progress(receiver_);
  EXPECT_EQ(seqs_, std::vector<std::uint64_t>{1});
}

TEST_F(LoopbackNetworkTest, FramesOfDifferentConnectionsOvertakeEachOtherAndThoseOfOneDoNot) {
  auto [first, first_end] = connect();
  auto [second, second_end] = connect();
  network_.set_weather({.least_delay = microseconds(10), .most_delay = milliseconds(50)});
  for (std::uint64_t i = 0; i < 40; ++i) post(i % 2 == 0 ? *first : *second, i);
  for (int i = 0; i < 100; ++i) {
    network_.advance(milliseconds(1));
    first_end->progress(receiver_);
    second_end->progress(receiver_);
  }
  ASSERT_EQ(seqs_.size(), 40u);
  EXPECT_FALSE(std::is_sorted(seqs_.begin(), seqs_.end()));
  for (const std::uint64_t parity : {0u, 1u}) {
    std::vector<std::uint64_t> of_one;
    for (const auto seq : seqs_)
      if (seq % 2 == parity) of_one.push_back(seq);
    EXPECT_TRUE(std::is_sorted(of_one.begin(), of_one.end()));
  }
}

TEST_F(LoopbackNetworkTest, AShortCutLosesNothing) {
  auto [there, back] = connect();
  network_.cut("other", "one");
  post(*there, 1);
  network_.advance(seconds(9));
  EXPECT_EQ(there->progress(receiver_), Progress::Again);
  EXPECT_EQ(back->progress(receiver_), Progress::Again);
  network_.heal("one", "other");
  back->progress(receiver_);
  EXPECT_EQ(seqs_, std::vector<std::uint64_t>{1});
}

TEST_F(LoopbackNetworkTest, ALongCutIsADeadPeerToWhoSends) {
  auto [there, back] = connect();
  network_.cut("one", "other");
  post(*there, 1);
  network_.advance(milliseconds(10001));
  EXPECT_EQ(there->progress(receiver_), Progress::Failed);
  EXPECT_EQ(there->error().reason, Reason::Timeout);
  EXPECT_THAT(there->error().message, HasSubstr("timed out"));
}

TEST_F(LoopbackNetworkTest, ADeadHostEndsItsConnectionsAndAnswersNobody) {
  auto [there, back] = connect();
  network_.kill("other");
  EXPECT_EQ(there->progress(receiver_), Progress::Failed);
  EXPECT_EQ(there->error().reason, Reason::RemoteDied);
  auto again = one_->connect(other_->address(), "other", {}, {}).value();
  EXPECT_EQ(again->progress(receiver_), Progress::Failed);
}

TEST_F(LoopbackNetworkTest, AFlippedBitEndsTheConnection) {
  auto [there, back] = connect();
  network_.corrupt_next("one", "other");
  post(*there, 1);
  network_.advance(milliseconds(1));
  back->progress(receiver_);
  EXPECT_EQ(back->is_open(), Progress::Failed);
  EXPECT_EQ(back->progress(receiver_), Progress::Failed) << "its goodbye has left";
  EXPECT_TRUE(seqs_.empty());
  network_.advance(milliseconds(1));
  EXPECT_EQ(there->progress(receiver_), Progress::Failed);
  EXPECT_THAT(there->error().message, HasSubstr(std::string(kYourFault)));
}

}  // namespace
}  // namespace arcomm::net
