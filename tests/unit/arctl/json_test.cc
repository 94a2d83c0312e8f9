#include "client/arctl/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace arcomm::arctl {
namespace {

TEST(Json, SeparatesMembersAndElements) {
  Json json;
  json.begin_object()
      .field("a", 1)
      .key("b")
      .begin_array()
      .value(true)
      .value("x")
      .begin_object()
      .end_object();
  json.end_array().field("c", -2).end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":[true,"x",{}],"c":-2})");
}

TEST(Json, WritesEmptyContainers) {
  Json json;
  json.begin_object()
      .key("none")
      .begin_array()
      .end_array()
      .key("void")
      .begin_object()
      .end_object()
      .end_object();
  EXPECT_EQ(json.take(), R"({"none":[],"void":{}})");
}

TEST(Json, EscapesQuotesBackslashesAndControlCharacters) {
  Json json;
  json.value(std::string_view("a\"b\\c\nd\te\x01\x7f\0z", 13));
  EXPECT_EQ(json.take(), "\"a\\\"b\\\\c\\nd\\te\\u0001\\u007f\\u0000z\"");
}

TEST(Json, KeepsUtf8AndReplacesWhatIsNot) {
  Json json;
  json.value("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(json.take(), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  json.value(
      "a\xff"
      "b\xc3");  // a stray byte, and a sequence that is cut off
  EXPECT_EQ(json.take(),
            "\"a\xef\xbf\xbd"
            "b\xef\xbf\xbd\"");
  json.value("\xed\xa0\x80");  // a surrogate
  EXPECT_EQ(json.take(), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  json.value("\xc0\xaf");  // an overlong slash
  EXPECT_EQ(json.take(), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(Json, WritesNumbersThatReadBackTheSame) {
  Json json;
  json.begin_array()
      .value(0.1)
      .value(1e300)
      .value(std::numeric_limits<std::uint64_t>::max())
      .value(std::numeric_limits<std::int64_t>::min())
      .end_array();
  EXPECT_EQ(json.take(), "[0.1,1e+300,18446744073709551615,-9223372036854775808]");
}

TEST(Json, WritesNullForWhatIsNotFinite) {
  Json json;
  json.begin_array().value(std::nan("")).value(HUGE_VAL).value(-HUGE_VAL).end_array();
  EXPECT_EQ(json.take(), "[null,null,null]");
}

TEST(Json, StartsAfreshAfterTake) {
  Json json;
  json.begin_array().value(1).end_array();
  EXPECT_EQ(json.take(), "[1]");
  json.begin_array().value(2).end_array();
  EXPECT_EQ(json.take(), "[2]");
}

}  // namespace
}  // namespace arcomm::arctl
