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

void append(Bytes& stream, FrameHeader header, const Bytes& payload) {
  seal(header, payload);
  const auto bytes = std::as_bytes(std::span(&header, 1));
  stream.insert(stream.end(), bytes.begin(), bytes.end());
  stream.insert(stream.end(), payload.begin(), payload.end());
}

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
  Bytes stream, all;
  std::mt19937 random(1);
  for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 5000u, 131072u, 0u, 40000u}) {
    Bytes payload(size);
    for (auto& byte : payload) byte = static_cast<std::byte>(random());
    append(stream, {.kind = FrameKind::Chunk}, payload);
    all.insert(all.end(), payload.begin(), payload.end());
  }
  const auto try_pieces = [&](auto next) {
    Regions regions;
    Incoming incoming(regions, std::nullopt);
    CountingReceiver receiver;
    const Status fed = feed(incoming, receiver, stream, next);
    ASSERT_TRUE(fed.ok()) << fed.error().to_string();
    EXPECT_EQ(receiver.frames, 9);
    EXPECT_EQ(receiver.all, all);
  };
  try_pieces([] { return 1; });
  try_pieces([] { return 64; });
  try_pieces([] { return 1 << 20; });
  for (int i = 0; i < 20; ++i) try_pieces([&] { return 1 + random() % 3000; });
}

TEST(Incoming, OnlyAWelcomeOpensAConnection) {
  Regions regions;
  CountingReceiver receiver;
  const auto whole = [] { return std::size_t{1} << 20; };
  {
    Incoming incoming(regions, kAnswer);
    Bytes stream;
    append(stream, {.kind = FrameKind::Welcome}, Bytes(kAnswer.begin(), kAnswer.end()));
    EXPECT_TRUE(feed(incoming, receiver, stream, whole).ok());
    EXPECT_TRUE(incoming.is_welcomed());
    EXPECT_THAT(feed(incoming, receiver, stream, whole).error().message,
                HasSubstr("a second welcome"));
  }
  {
    Incoming incoming(regions, kAnswer);
    Bytes stream;
    append(stream, {.kind = FrameKind::Message}, {});
    EXPECT_THAT(feed(incoming, receiver, stream, whole).error().message,
                HasSubstr("where a welcome was expected"));
  }
  EXPECT_EQ(receiver.frames, 0);
}

TEST(Incoming, AGoodbyesWordsAreShownSafely) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  Bytes stream;
  const std::string_view words = "bye\n\x1b[31m";
  append(stream, {.kind = FrameKind::Goodbye},
         {std::as_bytes(std::span(words)).begin(), std::as_bytes(std::span(words)).end()});
  const Status ended = feed(incoming, receiver, stream, [] { return 7; });
  EXPECT_EQ(ended.error().code, ErrorCode::Aborted);
  EXPECT_THAT(ended.error().message, HasSubstr("bye\\x0a\\x1b[31m"));
}

TEST(Incoming, AChangedChunkIsGivenUpAndTheNextFrameIsNot) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  Bytes stream;
  append(stream, {.kind = FrameKind::Chunk}, Bytes(1000, std::byte{1}));
  stream[500] ^= std::byte{1};
  append(stream, {.kind = FrameKind::Chunk}, Bytes(10, std::byte{2}));
  EXPECT_TRUE(feed(incoming, receiver, stream, [] { return 100; }).ok());
  EXPECT_EQ(receiver.given_back, 1);
  EXPECT_EQ(receiver.all, Bytes(10, std::byte{2}));
}

TEST(Incoming, AChangedMessageEndsTheStream) {
  Regions regions;
  Incoming incoming(regions, std::nullopt);
  CountingReceiver receiver;
  Bytes stream;
  append(stream, {.kind = FrameKind::Message}, Bytes(1000, std::byte{1}));
  stream[500] ^= std::byte{1};
  EXPECT_EQ(feed(incoming, receiver, stream, [] { return 100; }).error().reason, Reason::Corrupt);
  EXPECT_EQ(receiver.frames, 0);
  EXPECT_EQ(receiver.given_back, 1);
}

}  // namespace
}  // namespace arcomm::net
