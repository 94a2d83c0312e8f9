#include "transport/net/tcp/incoming.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <vector>

#include "transport/net/sealing.h"

namespace arcomm::net {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr Secret kAnswer{std::byte{1}, std::byte{2}};

class CountingReceiver final : public Receiver {
 public:
  Result<std::byte*> place(const FrameHeader& header) override {
    memory.resize(header.length + 1);
    return memory.data();
  }
  Status arrived(const FrameHeader&, std::span<const std::byte> payload) override {
    all.insert(all.end(), payload.begin(), payload.end());
    ++frames;
    return {};
  }
  void abandoned(const FrameHeader&) override { ++given_back; }
  Bytes memory, all;
  int frames = 0, given_back = 0;
};

// What a peer sends, from its frame `first` on: 1 where its hello has come.
class PeerStream {
 public:
  explicit PeerStream(std::uint64_t first = 1) : next_(first) {}
  void add(FrameHeader header, const Bytes& payload) {
    begins.push_back(bytes.size());
    header.number = next_++;
    seal(header, payload);
    const auto sealed = std::as_bytes(std::span(&header, 1));
    bytes.insert(bytes.end(), sealed.begin(), sealed.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
  }
  // The n-th frame that was added, from 0.
  Bytes frame(std::size_t n) const {
    const auto at = [&](std::size_t i) {
      return bytes.begin() +
             static_cast<std::ptrdiff_t>(i < begins.size() ? begins[i] : bytes.size());
    };
    return {at(n), at(n + 1)};
  }

  Bytes bytes;
  std::vector<std::size_t> begins;

 private:
  std::uint64_t next_;
};

// Gives the stream in pieces as a socket might.
template <typename Next>
Status feed(Incoming& incoming, Receiver& receiver, std::span<const std::byte> stream, Next next) {
  while (!stream.empty()) {
    const std::size_t count = std::min<std::size_t>(next(), stream.size());
    std::size_t given = 0;
    for (const iovec& piece : incoming.room()) {
      const std::size_t part = std::min(piece.iov_len, count - given);
      if (part > 0) std::memcpy(piece.iov_base, stream.data() + given, part);
      given += part;
    }
    stream = stream.subspan(given);
    ARC_RETURN_IF_ERROR(incoming.take(given, receiver));
  }
  return {};
}

TEST(Incoming, FramesAreTheSameHoweverTheStreamIsTorn) {
  PeerStream stream;
  Bytes all;
  std::mt19937 random(1);
  for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 5000u, 131072u, 0u, 40000u}) {
    Bytes payload(size);
    for (auto& byte : payload) byte = static_cast<std::byte>(random());
    stream.add({.kind = FrameKind::Chunk}, payload);
    all.insert(all.end(), payload.begin(), payload.end());
  }
  const auto try_pieces = [&](auto next) {
    Regions regions;
    Incoming incoming(regions, std::nullopt);
    CountingReceiver receiver;
    const Status fed = feed(incoming, receiver, stream.bytes, next);
    ASSERT_TRUE(fed.ok()) << fed.error().to_string();
    EXPECT_EQ(receiver.frames, 9);
    EXPECT_EQ(receiver.all, all);
  };
  try_pieces([] { return 1; });
  try_pieces([] { return 64; });
  try_pieces([] { return 1 << 20; });
  for (int i = 0; i < 20; ++i) try_pieces([&] { return 1 + random() % 3000; });
}

TEST(Incoming, ChunksInARowAreReadToWhereTheyBelongAndNotIntoTheBuffer) {
  PeerStream stream;
  for (int chunk = 0; chunk < 3; ++chunk)
    stream.add({.kind = FrameKind::Chunk}, Bytes(kMostChunkBytes));
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  const auto first = [] { return sizeof(FrameHeader); };
  std::span<const std::byte> left(stream.bytes);
  ASSERT_TRUE(feed(incoming, receiver, left.first(sizeof(FrameHeader)), first).ok());
  left = left.subspan(sizeof(FrameHeader));
  for (int chunk = 0; chunk < 3; ++chunk) {
    const auto room = incoming.room();
    EXPECT_EQ(room[0].iov_base, receiver.memory.data());
    EXPECT_EQ(room[0].iov_len, kMostChunkBytes);
    EXPECT_EQ(room[1].iov_len, sizeof(FrameHeader)) << "what follows is the next one's header";
    const std::size_t all = std::min(left.size(), kMostChunkBytes + sizeof(FrameHeader));
    ASSERT_TRUE(feed(incoming, receiver, left.first(all), [&] { return all; }).ok());
    left = left.subspan(all);
  }
  EXPECT_EQ(receiver.frames, 3);
}

TEST(Incoming, OnlyAWelcomeOpensAConnection) {
  Regions regions;
  CountingReceiver receiver;
  const auto whole = [] { return std::size_t{1} << 20; };
  {
    Incoming incoming(regions, kAnswer);
    PeerStream stream(0);
    const Bytes answer(kAnswer.begin(), kAnswer.end());
    stream.add({.kind = FrameKind::Welcome}, answer);
    EXPECT_TRUE(feed(incoming, receiver, stream.bytes, whole).ok());
    EXPECT_TRUE(incoming.is_welcomed());
    stream.add({.kind = FrameKind::Welcome}, answer);
    EXPECT_THAT(feed(incoming, receiver, stream.frame(1), whole).error().message,
                HasSubstr("a second welcome"));
  }
  {
    Incoming incoming(regions, kAnswer);
    PeerStream stream(0);
    stream.add({.kind = FrameKind::Message}, {});
    EXPECT_THAT(feed(incoming, receiver, stream.bytes, whole).error().message,
                HasSubstr("where a welcome was expected"));
  }
  EXPECT_EQ(receiver.frames, 0);
}

TEST(Incoming, AGoodbyesWordsAreShownSafely) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  PeerStream stream;
  const std::string_view words = "bye\n\x1b[31m";
  stream.add({.kind = FrameKind::Goodbye},
             {std::as_bytes(std::span(words)).begin(), std::as_bytes(std::span(words)).end()});
  const Status ended = feed(incoming, receiver, stream.bytes, [] { return 7; });
  EXPECT_EQ(ended.error().code, ErrorCode::Aborted);
  EXPECT_THAT(ended.error().message, HasSubstr("bye\\x0a\\x1b[31m"));
}

TEST(Incoming, AChangedChunkIsGivenUpAndTheNextFrameIsNot) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  PeerStream stream;
  stream.add({.kind = FrameKind::Chunk}, Bytes(1000, std::byte{1}));
  stream.bytes[500] ^= std::byte{1};
  stream.add({.kind = FrameKind::Chunk}, Bytes(10, std::byte{2}));
  EXPECT_TRUE(feed(incoming, receiver, stream.bytes, [] { return 100; }).ok());
  EXPECT_EQ(receiver.given_back, 1);
  EXPECT_EQ(receiver.all, Bytes(10, std::byte{2}));
}

TEST(Incoming, AChangedMessageEndsTheStream) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  PeerStream stream;
  stream.add({.kind = FrameKind::Message}, Bytes(1000, std::byte{1}));
  stream.bytes[500] ^= std::byte{1};
  EXPECT_EQ(feed(incoming, receiver, stream.bytes, [] { return 100; }).error().reason,
            Reason::Corrupt);
  EXPECT_EQ(receiver.frames, 0);
  EXPECT_EQ(receiver.given_back, 1);
}

// Puts of 8 bytes each, each of which raises a signal.
class IncomingPuts : public testing::Test {
 protected:
  void SetUp() override {
    region_ = regions_.add(memory_, signals_, {}).value();
    for (std::uint64_t i = 0; i < 4; ++i)
      stream_.add({.kind = FrameKind::Put, .offset = 8 * i, .region = region_, .add = 1},
                  Bytes(8, std::byte(i + 1)));
  }
  void TearDown() override { EXPECT_TRUE(regions_.remove(region_)); }

  // What the stream ends with, if these frames come, in this order.
  std::string end_of(std::initializer_list<std::size_t> frames) {
    Incoming incoming(regions_, std::nullopt);
    Bytes bytes;
    for (const std::size_t n : frames) {
      const Bytes frame = stream_.frame(n);
      bytes.insert(bytes.end(), frame.begin(), frame.end());
    }
    CountingReceiver receiver;
    const Status fed = feed(incoming, receiver, bytes, [] { return 50; });
    if (fed) return "";
    EXPECT_EQ(fed.error().code, ErrorCode::DataLoss);
    EXPECT_EQ(fed.error().reason, Reason::Corrupt);
    return fed.error().message;
  }

  Regions regions_;
  Bytes memory_ = Bytes(32);
  std::vector<SignalWord> signals_ = std::vector<SignalWord>(1);
  RegionId region_ = 0;
  PeerStream stream_;
};

TEST_F(IncomingPuts, AFrameThatIsRepeatedRaisesNoSignalAgainAndEndsTheStream) {
  EXPECT_EQ(end_of({0, 1, 1, 2}),
            "frame 2 of the stream (a put) came where frame 3 was expected: it was repeated");
  EXPECT_EQ(signals_[0], 2u);
  EXPECT_EQ(end_of({0, 1, 2, 3, 0}),
            "frame 1 of the stream (a put) came where frame 5 was expected: it was repeated");
  EXPECT_EQ(signals_[0], 2u + 4u);
}

TEST_F(IncomingPuts, AFrameThatComesBeforeOneThatWasLostOrOvertakenWritesNothing) {
  EXPECT_THAT(end_of({0, 2, 3}), HasSubstr("frame 3 of the stream (a put) came where frame 2 was "
                                           "expected: frames were lost or overtaken"));
  EXPECT_EQ(signals_[0], 1u);
  EXPECT_EQ(memory_[16], std::byte{0});
  EXPECT_THAT(end_of({1, 0}), HasSubstr("frame 2 of the stream (a put) came where frame 1"));
  EXPECT_EQ(signals_[0], 1u);
  EXPECT_EQ(memory_[8], std::byte{0});
}

TEST_F(IncomingPuts, AFrameThatIsAskedForAgainUntilThereIsRoomHasItsNumberOnce) {
  class FullReceiver final : public Receiver {
   public:
    Result<std::byte*> place(const FrameHeader&) override {
      return ++asked % 3 == 0 ? memory.data() : nullptr;
    }
    Status arrived(const FrameHeader&, std::span<const std::byte>) override {
      ++frames;
      return {};
    }
    void abandoned(const FrameHeader&) override {}
    Bytes memory = Bytes(1000);
    int asked = 0, frames = 0;
  } receiver;
  PeerStream stream;
  for (int i = 0; i < 3; ++i) stream.add({.kind = FrameKind::Chunk}, Bytes(1000, std::byte{1}));
  Incoming incoming(regions_, std::nullopt);
  ASSERT_TRUE(feed(incoming, receiver, stream.bytes, [] { return 1 << 20; }).ok());
  for (int i = 0; i < 20 && receiver.frames < 3; ++i) ASSERT_TRUE(incoming.take(0, receiver).ok());
  EXPECT_EQ(receiver.frames, 3);
}

}  // namespace
}  // namespace arcomm::net
