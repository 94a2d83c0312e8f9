#include "transport/net/sealing.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace arcomm::net {
namespace {

using testing::HasSubstr;

std::span<const std::byte, sizeof(FrameHeader)> bytes_of(const FrameHeader& header) {
  return std::as_bytes(std::span<const FrameHeader, 1>(&header, 1));
}

TEST(Sealing, IsTheChecksumOfTheStandard) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283U);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Sealing, EveryChangedBitOfAHeaderIsFound) {
  FrameHeader sealed{
      .kind = FrameKind::Put, .number = 2, .communicator = 3, .seq = 4, .offset = 5, .region = 6};
  const std::vector<std::byte> payload(100, std::byte{9});
  seal(sealed, payload);
  ASSERT_TRUE(open_header(bytes_of(sealed)).ok());
  for (std::size_t bit = 0; bit < 8 * sizeof sealed; ++bit) {
    FrameHeader changed = sealed;
    reinterpret_cast<std::byte*>(&changed)[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(open_header(bytes_of(changed)).ok()) << bit;
  }
}

TEST(Sealing, AChangedPayloadIsFound) {
  FrameHeader header{.kind = FrameKind::Chunk};
  std::vector<std::byte> payload(1000, std::byte{9});
  seal(header, payload);
  EXPECT_TRUE(check_payload(header, payload).ok());
  payload[700] ^= std::byte{4};
  const auto checked = check_payload(header, payload);
  EXPECT_EQ(checked.error().reason, Reason::Corrupt);
  EXPECT_THAT(checked.error().message, HasSubstr("payload of a chunk frame of 1000 bytes"));
}

TEST(Sealing, WhatIsNoFrameOfOursIsNamed) {
  const auto why = [](FrameHeader header) {
    header.header_crc = crc32c(bytes_of(header).first<68>());
    auto opened = open_header(bytes_of(header));
    return opened ? "" : opened.error().to_string();
  };
  EXPECT_EQ(why({}), "");
  EXPECT_THAT(why({.magic = 0x20544547}), HasSubstr("no frame of arcommd's"));
  EXPECT_THAT(why({.magic = 0x41524346}), HasSubstr("another byte order"));
  EXPECT_THAT(why({.version = 1}), HasSubstr("speaks wire version 1 and this daemon 2"));
  EXPECT_THAT(why({.kind = static_cast<FrameKind>(99)}), HasSubstr("unknown kind 99"));
  EXPECT_THAT(why({.flags = 1}), HasSubstr("unknown flags"));
  EXPECT_THAT(why({.kind = FrameKind::Message, .length = kMostMessageBytes + 1}),
              HasSubstr("16385 bytes"));
  EXPECT_THAT(why({.kind = FrameKind::Chunk, .length = kMostChunkBytes + 1}),
              HasSubstr("131073 bytes"));
  EXPECT_THAT(why({.kind = FrameKind::Hello, .length = 3}), HasSubstr("a hello frame of 3 bytes"));
  EXPECT_THAT(why({.kind = FrameKind::Signal, .length = 1}),
              HasSubstr("a signal frame of 1 bytes"));
  EXPECT_THAT(why({.kind = FrameKind::Chunk, .region = 1}), HasSubstr("names a region"));
}

TEST(Sealing, AFrameThatIsNotTheNextOfItsStreamIsNamedWithBothNumbers) {
  const FrameHeader header{.kind = FrameKind::Put, .number = 17};
  EXPECT_TRUE(check_number(header, 17).ok());
  const auto again = check_number(header, 18);
  EXPECT_EQ(again.error().reason, Reason::Corrupt);
  EXPECT_EQ(again.error().message,
            "frame 17 of the stream (a put) came where frame 18 was expected: it was repeated");
  EXPECT_EQ(check_number(header, 16).error().message,
            "frame 17 of the stream (a put) came where frame 16 was expected: frames were lost or "
            "overtaken");
}

}  // namespace
}  // namespace arcomm::net
