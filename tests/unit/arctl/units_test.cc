#include "client/arctl/command_line/units.h"

#include <gtest/gtest.h>

namespace arcomm::arctl {
namespace {

TEST(Units, ShowBytesInTheUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes((1u << 20) - 1), "1 MiB");
  EXPECT_EQ(human_bytes(5ull << 30), "5 GiB");
  EXPECT_EQ(human_bytes(~0ull), "16 EiB");
}

TEST(Units, ShowCountsShortly) {
  EXPECT_EQ(human_count(9999), "9999");
  EXPECT_EQ(human_count(12'345), "12.3 k");
  EXPECT_EQ(human_count(4'560'000), "4.6 M");
}

TEST(Units, ShowDurationsInTwoUnitsAtMost) {
  EXPECT_EQ(human_duration(0), "0 ms");
  EXPECT_EQ(human_duration(12'999), "12 s");
  EXPECT_EQ(human_duration(185'000), "3 min 05 s");
  EXPECT_EQ(human_duration(2 * 3'600'000 + 3 * 60'000), "2 h 03 min");
  EXPECT_EQ(human_duration(49ull * 3'600'000), "2 d 01 h");
}

TEST(Units, ShowMicrosecondsWithoutLosingTheSmallOnes) {
  EXPECT_EQ(human_us(0.5), "0.50 us");
  EXPECT_EQ(human_us(999.999), "1.00 ms");
  EXPECT_EQ(human_us(2'500'000), "2.50 s");
}

TEST(Units, ReadSizes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("1024"), 1024u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64kB"), 65536u);
  EXPECT_EQ(parse_bytes("1.5 MiB"), 1572864u);
  EXPECT_EQ(parse_bytes("2G"), 2ull << 30);
}

TEST(Units, RefuseWhatIsNoSize) {
  for (const char* text :
       {"", "K", "-1", "1X", "64Ki", "1e3", "inf", "nan", "0.3", "99999999999G", "1K2", " 1"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(Units, SpellVersions) {
  EXPECT_EQ(version_text(10203), "1.2.3");
}

}  // namespace
}  // namespace arcomm::arctl
