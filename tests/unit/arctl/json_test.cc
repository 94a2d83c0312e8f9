#include "client/arctl/view/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

TEST(Json, KeepsTheOrderInWhichMembersWerePut) {
  EXPECT_EQ(json_line({{"b", 1}, {"a", {true, "x", Json::object()}}, {"c", -2}}),
            "{\"b\":1,\"a\":[true,\"x\",{}],\"c\":-2}\n");
}

TEST(Json, EscapesQuotesBackslashesAndControlCharacters) {
  const Json read = Json::parse(json_line(std::string("a\"b\\c\nd\te\x01\x7f\0z", 13)));
  EXPECT_EQ(read.get<std::string>(), std::string("a\"b\\c\nd\te\x01\x7f\0z", 13));
  EXPECT_EQ(json_line("\n\x01"), "\"\\n\\u0001\"\n");
}

TEST(Json, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(json_line("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\n");
  for (const char* bad : {"a\xff", "a\xc3", "a\xed\xa0\x80", "a\xc0\xaf"}) {
    const std::string line = json_line(bad);
    EXPECT_TRUE(line.starts_with("\"a\xef\xbf\xbd")) << line;
    EXPECT_TRUE(Json::accept(line)) << line;
  }
}

TEST(Json, ShowsAProcessWhoseNameIsNotText) {
  v1::SessionsReply reply;
  v1::SessionStatus& session = *reply.add_sessions();
  session.set_process_name("ev\xc0\xaf\"\n\xff");
  const Json read = Json::parse(json_line(sessions_json(reply)));
  EXPECT_TRUE(read["sessions"][0]["process_name"].get<std::string>().starts_with("ev\xef\xbf\xbd"));
}

TEST(Json, WritesNumbersThatReadBackTheSame) {
  EXPECT_EQ(
      json_line({json_number(0.1), json_number(1e300), std::numeric_limits<std::uint64_t>::max(),
                 std::numeric_limits<std::int64_t>::min()}),
      "[0.1,1e+300,18446744073709551615,-9223372036854775808]\n");
}

TEST(Json, WritesWholeNumbersWithoutAFraction) {
  EXPECT_EQ(json_line({json_number(3), json_number(-4), json_number(2.5), json_number(0)}),
            "[3,-4,2.5,0]\n");
}

TEST(Json, WritesNullForWhatIsNotFinite) {
  EXPECT_EQ(json_line({json_number(std::nan("")), json_number(HUGE_VAL), json_number(-HUGE_VAL)}),
            "[null,null,null]\n");
}

}  // namespace
}  // namespace arcomm::arctl
