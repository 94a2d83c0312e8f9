#include "transport/net/streams/bulk_streams.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "transport/net/tcp/endpoint.h"

namespace arcomm::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Puts chunks together by their offsets, from several threads.
class AssemblingReceiver final : public Receiver {
 public:
  explicit AssemblingReceiver(std::size_t size) : memory(size) {}
  Result<std::byte*> place(const FrameHeader& header) override {
    if (!has_room.load()) return nullptr;
    if (header.offset + header.length > memory.size())
      return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "outside");
    return memory.data() + header.offset;
  }
  Status arrived(const FrameHeader&, std::span<const std::byte> payload) override {
    bytes += payload.size();
    return {};
  }
  void abandoned(const FrameHeader&) override {}

  std::vector<std::byte> memory;
  std::atomic<std::size_t> bytes{0};
  std::atomic<bool> has_room{true};
};

class BulkStreamsTest : public testing::Test {
 protected:
  static constexpr std::size_t kStreams = 3;
  static constexpr std::size_t kBytes = std::size_t{24} << 20;

  struct Side {
    std::unique_ptr<Endpoint> endpoint = TcpEndpoint::open({.address = {"127.0.0.1", 0}}).value();
    AssemblingReceiver receiver{kBytes};
    BulkStreams streams{receiver};
  };

  void SetUp() override {
    for (std::size_t i = 0; i < kStreams; ++i) {
      ConnectionPtr there = a_.endpoint->connect(b_.endpoint->address(), "node-b", {}, {}).value();
      ASSERT_TRUE(a_.streams.add(std::move(there), {}).ok());  // which greets
      ConnectionPtr back;
      ASSERT_TRUE(until([&] {
        back = b_.endpoint->accept(
            [](const HelloKey&) -> Result<Guest> { return Guest{.peer = "node-a"}; });
        return back != nullptr;
      }));
      ASSERT_TRUE(b_.streams.add(std::move(back), {}).ok());
    }
  }
  static bool until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // All of `data` as chunks of any size.
  static void post_all(BulkStreams& streams, const std::vector<std::byte>& data, OnLoan& on_loan) {
    std::mt19937 random(5);
    for (std::size_t offset = 0; offset < data.size();) {
      const std::size_t size =
          std::min<std::size_t>(1 + random() % kMostChunkBytes, data.size() - offset);
      on_loan.fetch_add(1);
      const Frame frame{.header = {.kind = FrameKind::Chunk, .offset = offset},
                        .payload = std::span(data).subspan(offset, size)};
      Progress posted = Progress::Again;
      ASSERT_TRUE(
          until([&] { return (posted = streams.post(frame, on_loan)) != Progress::Again; }));
      ASSERT_EQ(posted, Progress::Done);
      offset += size;
    }
  }

  static std::vector<std::byte> random_bytes(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(bytes.data() + i, &word, 8);
    }
    return bytes;
  }

  Side a_, b_;
};

TEST_F(BulkStreamsTest, EveryByteArrivesBothWays) {
  const auto there = random_bytes(1), back = random_bytes(2);
  OnLoan there_on_loan{0}, back_on_loan{0};
  std::thread other([&] { post_all(b_.streams, back, back_on_loan); });
  post_all(a_.streams, there, there_on_loan);
  other.join();
  ASSERT_TRUE(until([&] {
    return a_.receiver.bytes == kBytes && b_.receiver.bytes == kBytes && there_on_loan == 0 &&
           back_on_loan == 0;
  }));
  EXPECT_EQ(std::memcmp(b_.receiver.memory.data(), there.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(a_.receiver.memory.data(), back.data(), kBytes), 0);
  std::uint64_t sent = 0, received = 0;
  for (const auto& counters : a_.streams.counters()) {
    sent += counters.sent_bytes;
    received += counters.received_bytes;
    EXPECT_THAT(counters.name, HasSubstr("over rail 0"));
  }
  EXPECT_GT(sent, kBytes) << "payloads and headers";
  EXPECT_GT(received, kBytes);
  EXPECT_EQ(a_.streams.failure(), std::nullopt);
}

TEST_F(BulkStreamsTest, NobodyIsAwakeWhenNothingHasMovedForAWhile) {
  const BulkStreams& streams = a_.streams;
  EXPECT_TRUE(until([&] { return !streams.is_awake(); }));
  OnLoan on_loan{1};
  const std::vector<std::byte> data(1000);
  ASSERT_EQ(a_.streams.post({.header = {.kind = FrameKind::Chunk}, .payload = data}, on_loan),
            Progress::Done);
  EXPECT_TRUE(until([&] { return on_loan == 0 && !streams.is_awake(); }));
}

TEST_F(BulkStreamsTest, SleepsWhenNothingMovesAndIsWokenByAPostAndByAFrame) {
  const auto data = random_bytes(3);
  for (int round = 1; round <= 5; ++round) {
    std::this_thread::sleep_for(milliseconds(20));
    OnLoan on_loan{1};
    ASSERT_EQ(a_.streams.post(
                  {.header = {.kind = FrameKind::Chunk}, .payload = std::span(data).first(1000)},
                  on_loan),
              Progress::Done);
    ASSERT_TRUE(until(
        [&] { return on_loan == 0 && b_.receiver.bytes == 1000u * static_cast<unsigned>(round); }));
  }
  for (const auto& counters : b_.streams.counters()) EXPECT_GT(counters.slept_ns, 10'000'000u);
}

TEST_F(BulkStreamsTest, EachStreamTellsHowItsLinkIs) {
  const auto data = random_bytes(7);
  OnLoan on_loan{0};
  post_all(a_.streams, data, on_loan);
  ASSERT_TRUE(until([&] { return b_.receiver.bytes == kBytes; }));
  ASSERT_TRUE(until([&] {
    std::uint64_t acknowledged = 0;
    for (const auto& counters : a_.streams.counters()) {
      acknowledged += counters.link.acknowledged_bytes;
      if (counters.link.rtt_us == 0) return false;
    }
    return acknowledged > kBytes;
  }));
}

TEST_F(BulkStreamsTest, AReceiverWithoutRoomHoldsWhatIsPostedUntilItHasSome) {
  const auto data = random_bytes(4);
  b_.receiver.has_room = false;
  OnLoan on_loan{0};
  std::thread poster([&] { post_all(a_.streams, data, on_loan); });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(b_.receiver.bytes, 0u);
  b_.receiver.has_room = true;
  poster.join();
  ASSERT_TRUE(until([&] { return b_.receiver.bytes == kBytes && on_loan == 0; }));
  EXPECT_EQ(std::memcmp(b_.receiver.memory.data(), data.data(), kBytes), 0);
}

TEST_F(BulkStreamsTest, AStreamThatFailsIsToldAndEveryPayloadComesBack) {
  const auto data = random_bytes(5);
  a_.receiver.has_room = true;
  OnLoan on_loan{1};
  // A frame that the peer refuses ends its stream, at both sides.
  ASSERT_EQ(a_.streams.post({.header = {.kind = FrameKind::Chunk, .offset = kBytes},
                             .payload = std::span(data).first(1)},
                            on_loan),
            Progress::Done);
  ASSERT_TRUE(until([&] { return a_.streams.failure() && b_.streams.failure(); }));
  EXPECT_THAT(b_.streams.failure()->message, HasSubstr("outside"));
  EXPECT_EQ(a_.streams.post({}, on_loan), Progress::Failed);
  ASSERT_TRUE(until([&] { return on_loan == 0; }));
}

TEST_F(BulkStreamsTest, ASetThatIsTakenDownGivesBackWhatItHeld) {
  const auto data = random_bytes(6);
  AssemblingReceiver receiver(kBytes);
  OnLoan on_loan{0};
  {
    BulkStreams streams(receiver);
    for (std::size_t i = 0; i < BulkQueue::kMost; ++i) {
      ++on_loan;
      ASSERT_EQ(
          streams.post({.header = {.kind = FrameKind::Chunk}, .payload = std::span(data).first(1)},
                       on_loan),
          Progress::Done);
    }
    EXPECT_EQ(streams.post({}, on_loan), Progress::Again);
    EXPECT_EQ(on_loan, BulkQueue::kMost);
  }
  EXPECT_EQ(on_loan, 0u);
}

TEST_F(BulkStreamsTest, ACpuThatTheProcessMayNotUseIsNamed) {
  ConnectionPtr there = a_.endpoint->connect(b_.endpoint->address(), "node-b", {}, {}).value();
  const Status added = a_.streams.add(std::move(there), {.spin = {}, .cpu = 100000});
  EXPECT_EQ(added.error().reason, Reason::BadConfig);
  EXPECT_THAT(added.error().message, HasSubstr("CPU 100000 for node-b"));
}

}  // namespace
}  // namespace arcomm::net
