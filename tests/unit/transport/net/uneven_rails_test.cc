// Two rails of which one is slow, or stands still for a while: what is sent goes mostly over the
// other, and all of it arrives.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/net/loopback/endpoint.h"
#include "transport/net/loopback/network.h"
#include "transport/net/streams/bulk_streams.h"
#include "transport/net/streams/driven_streams.h"
#include "transport/net/tcp/endpoint.h"

namespace arcomm::net {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kChunks = 200;
constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
constexpr std::size_t kBytes = kChunks * kChunkBytes;

std::vector<std::byte> random_bytes() {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

Frame chunk_of(const std::vector<std::byte>& data, std::size_t n) {
  return {.header = {.kind = FrameKind::Chunk, .offset = n * kChunkBytes},
          .payload = std::span(data).subspan(n * kChunkBytes, kChunkBytes)};
}

// Puts chunks together by their offsets, from any thread.
class JoiningReceiver final : public Receiver {
 public:
  Result<std::byte*> place(const FrameHeader& header) override {
    return memory.data() + header.offset;
  }
  Status arrived(const FrameHeader&, std::span<const std::byte>) override {
    ++chunks;
    return {};
  }
  void abandoned(const FrameHeader&) override {}

  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  std::atomic<std::size_t> chunks{0};
};

// The two ends of a connection, open.
std::pair<ConnectionPtr, ConnectionPtr> connect(Endpoint& from, Endpoint& to,
                                                const std::function<void()>& step) {
  JoiningReceiver nobody;
  ConnectionPtr out = from.connect(to.address(), "node-b", {}, {}).value();
  ConnectionPtr in;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (out->is_open() == Progress::Again && std::chrono::steady_clock::now() < end) {
    if (!in)
      in = to.accept([](const HelloKey&) -> Result<Guest> { return Guest{.peer = "node-a"}; });
    out->progress(nobody);
    if (in) in->progress(nobody);
    step();
  }
  EXPECT_EQ(out->is_open(), Progress::Done);
  return {std::move(out), std::move(in)};
}

// Streams 0 and 1 over a fast and a slow rail of a network with a clock of its own.
class DrivenUnevenRails : public testing::Test {
 protected:
  // As a peer's window of slots, which bounds what is under way.
  static constexpr std::uint32_t kWindow = 16;

  void SetUp() override {
    for (const std::string rail : {"fast", "slow"}) {
      endpoints_.push_back(LoopbackEndpoint::open(network_, {.address = {"a-" + rail, 0}}).value());
      endpoints_.push_back(LoopbackEndpoint::open(network_, {.address = {"b-" + rail, 0}}).value());
      auto [out, in] = connect(**(endpoints_.end() - 2), *endpoints_.back(), [this] { step(); });
      a_.add(std::move(out));
      b_.add(std::move(in));
    }
    network_.set_weather("a-fast", "b-fast", {.bytes_per_second = 2e9});
  }
  void step() { network_.advance(microseconds(5)); }
  // Posts and moves until so many chunks have arrived, or nothing has for long.
  void move_until(std::size_t arrived) {
    std::size_t before = to_.chunks;
    for (int quiet = 0; to_.chunks < arrived && quiet < 20'000; ++quiet) {
      while (posted_ < kChunks && on_loan_ < kWindow) {
        ++on_loan_;
        ASSERT_EQ(a_.post(chunk_of(data_, posted_), on_loan_), Progress::Done);
        ++posted_;
      }
      a_.progress();
      b_.progress();
      step();
      if (std::exchange(before, to_.chunks.load()) != to_.chunks) quiet = 0;
    }
  }
  std::uint64_t sent_over(std::size_t stream) const { return a_.counters()[stream].sent_bytes; }

  const std::vector<std::byte> data_ = random_bytes();
  LoopbackNetwork network_{5};
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  JoiningReceiver from_, to_;
  DrivenStreams a_{from_}, b_{to_};
  OnLoan on_loan_{0};
  std::size_t posted_ = 0;
};

TEST_F(DrivenUnevenRails, ASlowOneCarriesLittleOfWhatIsSent) {
  network_.set_weather("a-slow", "b-slow", {.bytes_per_second = 50e6});
  move_until(kChunks);
  EXPECT_EQ(to_.chunks, kChunks);
  EXPECT_EQ(to_.memory, data_);
  EXPECT_EQ(on_loan_, 0u);
  EXPECT_LT(sent_over(1) * 4, sent_over(0));
}

TEST_F(DrivenUnevenRails, OneThatStandsStillHoldsWhatItHasAndNoMoreUntilItGoesOn) {
  network_.cut("a-slow", "b-slow");
  move_until(kChunks);
  EXPECT_GE(to_.chunks, kChunks * 9 / 10);
  EXPECT_LT(to_.chunks, kChunks);
  EXPECT_EQ(posted_, kChunks);
  network_.heal("a-slow", "b-slow");
  move_until(kChunks);
  EXPECT_EQ(to_.chunks, kChunks);
  EXPECT_EQ(to_.memory, data_);
  EXPECT_EQ(on_loan_, 0u);
}

TEST_F(DrivenUnevenRails, EqualOnesTakeTurns) {
  network_.set_weather("a-slow", "b-slow", {.bytes_per_second = 2e9});
  move_until(kChunks);
  EXPECT_EQ(to_.memory, data_);
  EXPECT_EQ(sent_over(0), sent_over(1));
}

// The same over TCP, with a thread for each stream: the far end of one is not read for a while.
TEST(ThreadedUnevenRails, OneThatStandsStillHoldsWhatItHasAndNoMoreUntilItGoesOn) {
  const auto until = [](const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return holds();
  };
  const std::vector<std::byte> data = random_bytes();
  OnLoan on_loan{0};
  JoiningReceiver from, to;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  ConnectionPtr stalled;
  BulkStreams a(from), b(to);
  for (const char* const host : {"127.0.0.1", "127.0.0.2"}) {
    const EndpointOptions options{.address = {host, 0}, .buffer_bytes = std::size_t{128} << 10};
    for (int side = 0; side < 2; ++side) endpoints.push_back(TcpEndpoint::open(options).value());
    auto [out, in] = connect(**(endpoints.end() - 2), *endpoints.back(), std::this_thread::yield);
    ASSERT_TRUE(a.add(std::move(out), {}).ok());
    if (endpoints.size() == 2) {
      ASSERT_TRUE(b.add(std::move(in), {}).ok());
    } else {
      stalled = std::move(in);
    }
  }
  for (std::size_t n = 0; n < kChunks; ++n) {
    ++on_loan;
    ASSERT_EQ(a.post(chunk_of(data, n), on_loan), Progress::Done);
  }
  EXPECT_TRUE(until([&] { return to.chunks >= kChunks * 9 / 10; })) << to.chunks;
  ASSERT_TRUE(b.add(std::move(stalled), {}).ok());
  EXPECT_TRUE(until([&] { return to.chunks == kChunks && on_loan == 0; }));
  EXPECT_EQ(to.memory, data);
  const auto counters = a.counters();
  EXPECT_LT(counters[1].sent_bytes * 4, counters[0].sent_bytes);
}

}  // namespace
}  // namespace arcomm::net
