#include "proto/text.h"

#include <gtest/gtest.h>

#include <random>

namespace arcomm {
namespace {

constexpr std::size_t kPlenty = 1000;

bool is_safe(std::string_view text) {
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    if (character.bytes == 0 || is_unprintable(character.value)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

TEST(Text, LeavesWhatPeopleWriteAsItIs) {
  for (const char* text :
       {"", "trainer", "Größe €", "模型", "𝄞 clef", "a\\x0a", "می‌خواهم"})
    EXPECT_EQ(safe_text(text, kPlenty), text);
}

TEST(Text, EscapesControlsWhereverUnicodeHasThem) {
  EXPECT_EQ(safe_text("a\nb\x1b[31m\x7f", kPlenty), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(safe_text("\xc2\x9b"
                      "31m",
                      kPlenty),
            "\\u009b31m")
      << "an escape sequence in one";
  EXPECT_EQ(safe_text("\xe2\x80\xa8", kPlenty), "\\u2028") << "a line separator";
}

TEST(Text, EscapesWhatTurnsTheDirectionOfWriting) {
  EXPECT_EQ(safe_text("evil\u202egpj.exe", kPlenty), "evil\\u202egpj.exe");
  EXPECT_EQ(safe_text("\u2066a\u2069\u200f\ufeff", kPlenty), "\\u2066a\\u2069\\u200f\\ufeff");
}

TEST(Text, EscapesWhatIsNoUtf8ByteForByte) {
  EXPECT_EQ(safe_text("\xff\xc3", kPlenty), "\\xff\\xc3");
  EXPECT_EQ(safe_text("\xc0\xaf", kPlenty), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(safe_text("\xed\xa0\x80", kPlenty), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(safe_text("\xf5\x80\x80\x80", kPlenty), "\\xf5\\x80\\x80\\x80") << "beyond Unicode";
}

TEST(Text, IsSafeOnceAndStaysAsItIsThen) {
  const std::string once = safe_text("a\nb\\\xff\u202e€", kPlenty);
  EXPECT_EQ(safe_text(once, kPlenty), once);
}

TEST(Text, IsCutBetweenCharactersAndSaysSo) {
  EXPECT_EQ(safe_text("€€€", 9), "€€€") << "fits to the byte";
  EXPECT_EQ(safe_text("€€€", 8), "€...");
  EXPECT_EQ(safe_text("abcdef", 5), "ab...");
  EXPECT_EQ(safe_text("abcdef", 2), "") << "no room to say that it was cut";
  EXPECT_EQ(safe_text("aaaa\n", 7), "aaaa...") << "no half of an escape";
}

TEST(Text, CutsNoCharacterInTwo) {
  EXPECT_EQ(cut_text("a€b", 5), "a€b");
  EXPECT_EQ(cut_text("a€b", 4), "a€");
  EXPECT_EQ(cut_text("a€b", 3), "a");
  EXPECT_EQ(cut_text("a€b", 2), "a");
  EXPECT_EQ(cut_text("𝄞", 3), "");
  EXPECT_EQ(whole_length("a\xf0\x9d\x84"), 1u);
  EXPECT_EQ(whole_length(""), 0u);
}

TEST(Text, OfAnyBytesIsSafeAndWithinItsRoom) {
  std::mt19937 random(17);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 3 != 0 ? random() : 0x80 | random());
    const std::size_t most = random() % 50;
    const std::string safe = safe_text(bytes, most);
    ASSERT_LE(safe.size(), most);
    ASSERT_TRUE(is_safe(safe)) << safe;
    ASSERT_TRUE(is_safe(cut_text(safe_text(bytes, kPlenty), most)));
  }
}

}  // namespace
}  // namespace arcomm
