#include "daemon/control/access/frame_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/daemon/control/access/http2_bytes.h"

namespace arcomm::test {
namespace {

Status feed(FrameReader& reader, const std::string& bytes) {
  return reader.read(std::as_bytes(std::span(bytes)));
}

TEST(FrameReader, CountsFramesInWhateverPiecesTheyCome) {
  const std::string bytes = greeting() + frame(1, "headers") + frame(0, "") + frame(0, "data");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      ASSERT_TRUE(feed(reader, bytes.substr(at, piece)));
    EXPECT_TRUE(reader.prefaced() && reader.greeted());
    EXPECT_FALSE(reader.in_frame());
    EXPECT_EQ(reader.frames(), 4u) << "in pieces of " << piece;
  }
}

TEST(FrameReader, KnowsThatSomethingHasBegun) {
  const std::string bytes = greeting() + frame(0, "data");
  FrameReader reader;
  EXPECT_FALSE(reader.in_frame()) << "nothing has come";
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    ASSERT_TRUE(feed(reader, bytes.substr(i, 1)));
    const bool between = i + 1 == FrameReader::kPreface.size() || i + 1 == greeting().size();
    EXPECT_EQ(reader.in_frame(), !between) << i;
  }
}

TEST(FrameReader, RefusesWhatIsNoHttp2AtItsFirstWrongByte) {
  FrameReader http1;
  EXPECT_TRUE(feed(http1, "P"));
  EXPECT_FALSE(feed(http1, "OST / HTTP/1.1\r\n\r\n"));
  FrameReader rubbish;
  EXPECT_FALSE(feed(rubbish, std::string(1, '\0')));
}

TEST(FrameReader, RefusesAConnectionThatDoesNotBeginWithSettings) {
  FrameReader reader;
  EXPECT_FALSE(feed(reader, std::string(FrameReader::kPreface) + frame(1, "headers")));
}

TEST(FrameReader, RefusesAFrameLongerThanItWasToldOf) {
  FrameReader longest;
  EXPECT_TRUE(feed(longest, greeting() + frame(0, std::string(FrameReader::kMostFrameBytes, 'x'))));
  FrameReader longer;
  EXPECT_FALSE(
      feed(longer, greeting() + frame(0, std::string(FrameReader::kMostFrameBytes + 1, 'x'))));
}

TEST(FrameReader, CountsWhatFramesCostHoweverTheyAreCut) {
  const std::string bytes = greeting() + call_of(1, "/a/b") + reset_of(1) + frame(6, "12345678") +
                            frame(9, "") + frame(0, "") + frame(0, "", 1, 3) + frame(0, "data");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    FrameReader reader;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      ASSERT_TRUE(feed(reader, bytes.substr(at, piece)));
    EXPECT_EQ(reader.counts().calls, 1u);
    EXPECT_EQ(reader.counts().resets, 1u);
    EXPECT_EQ(reader.counts().others, 4u) << "SETTINGS, PING, CONTINUATION, and DATA of nothing";
  }
}

TEST(FrameReader, RefusesHeadersThatGoOnAndOn) {
  const std::string part(FrameReader::kMostFrameBytes, 'x');
  FrameReader reader;
  EXPECT_TRUE(feed(reader, greeting() + frame(1, part) + frame(9, part)));
  EXPECT_FALSE(feed(reader, frame(9, "x")));
  FrameReader several;
  EXPECT_TRUE(feed(several, greeting()));
  for (int i = 0; i < 9; ++i)
    EXPECT_TRUE(feed(several, frame(1, part) + frame(9, part, kEndHeaders)));
}

// What it sends is what gRPC makes of its client's settings.
TEST(FrameReader, FollowsAServerWithoutAPrefaceAndHoldsItToNothing) {
  FrameReader reader(FrameReader::Side::Server);
  EXPECT_TRUE(feed(reader, frame(1, "") + frame(0, std::string(100'000, 'x')) + reset_of(1)));
  EXPECT_EQ(reader.frames(), 3u);
  EXPECT_EQ(reader.counts().resets, 1u);
  EXPECT_FALSE(reader.in_frame());
}

TEST(FrameReader, FollowsWhichCallsHaveBegunAndNotEndedOnBothSides) {
  constexpr std::uint8_t kEndStream = 1;
  OpenCalls calls;
  FrameReader client(FrameReader::Side::Client, &calls);
  FrameReader server(FrameReader::Side::Server, &calls);
  EXPECT_TRUE(feed(client, greeting() + call_of(1, "/a/b") + call_of(3, "/a/b")));
  EXPECT_TRUE(feed(client, call_of(5, "/a/b") + call_of(3, "/a/b") + call_of(0, "/a/b")));
  EXPECT_EQ(calls.count(), 3u) << "what ends a call, and the connection itself, begin none";
  EXPECT_TRUE(feed(server, frame(4, "") + frame(1, "x", kEndHeaders, 1) + frame(0, "y", 0, 1)));
  EXPECT_EQ(calls.count(), 3u) << "the answer has begun";
  EXPECT_TRUE(feed(server, frame(1, "x", kEndHeaders | kEndStream, 1)));
  EXPECT_EQ(calls.count(), 2u);
  EXPECT_TRUE(feed(server, reset_of(1) + reset_of(3)));
  EXPECT_EQ(calls.count(), 1u) << "a call ends once";
  EXPECT_TRUE(feed(client, call_of(1, "/a/b") + reset_of(5)));
  EXPECT_EQ(calls.count(), 0u) << "an id is used once";
}

}  // namespace
}  // namespace arcomm::test
