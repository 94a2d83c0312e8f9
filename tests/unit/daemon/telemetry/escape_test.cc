#include "daemon/telemetry/log/escape.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

std::string json(std::string_view text, std::size_t budget = 1000) {
  std::string out;
  append_json_escaped(out, text, budget);
  return out;
}
std::string plain(std::string_view text, std::size_t budget = 1000) {
  std::string out;
  append_text_escaped(out, text, budget);
  return out;
}

TEST(Escape, KeepsAStrangersTextOnOneLine) {
  EXPECT_EQ(plain("a\nlevel=error\r\x1b[31m"), "a\\x0alevel=error\\x0d\\x1b[31m");
  EXPECT_EQ(json("a\n\"b\"\\"), "a\\u000a\\\"b\\\"\\\\");
}

TEST(Escape, LeavesUtf8AndEscapesWhatIsNone) {
  EXPECT_EQ(plain("Größe €"), "Größe €");
  EXPECT_EQ(json("Größe € 𝄞"), "Größe € 𝄞");
  EXPECT_EQ(plain("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(plain("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(plain("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(json("\xf5\x80\x80\x80"), "\\u00f5\\u0080\\u0080\\u0080");
}

TEST(Escape, StopsAtItsBudgetBetweenCharacters) {
  EXPECT_EQ(plain(std::string(100, 'a'), 10), "aaaaaaa...");
  EXPECT_EQ(json(std::string(100, '"'), 10), "\\\"\\\"\\\"...");
  EXPECT_LE(plain("€€€€€€€€", 10).size(), 10u);
}

TEST(Escape, FillsItsBudgetAndNeverExceedsIt) {
  EXPECT_EQ(json(std::string(10, 'a'), 10), std::string(10, 'a'));
  EXPECT_EQ(json("abc", 2), "") << "no room for the dots either";
}

}  // namespace
}  // namespace arcomm
