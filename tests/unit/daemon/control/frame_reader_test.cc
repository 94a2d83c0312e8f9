#include "daemon/control/access/frame_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/daemon/control/http2_bytes.h"

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

}  // namespace
}  // namespace arcomm::test
