#include "transport/net/addresses/address.h"

#include <gmock/gmock.h>

namespace arcomm::net {
namespace {

using testing::HasSubstr;

TEST(Address, IsReadAsItIsWritten) {
  for (const char* text :
       {"10.0.0.2:7400", "[fd00::2]:7400", "[fe80::1%eth0]:1", "0.0.0.0:0", "[::]:65535"})
    EXPECT_EQ(parse_address(text).value().to_string(), text);
  EXPECT_EQ(parse_address("[::1]:5").value(), (Address{"::1", 5}));
}

TEST(Address, SaysWhatIsWrongWithAText) {
  const auto why = [](const char* text) { return parse_address(text).error().message; };
  EXPECT_THAT(why("10.0.0.2"), HasSubstr("no port"));
  EXPECT_THAT(why(""), HasSubstr("no port"));
  EXPECT_THAT(why("10.0.0.2:"), HasSubstr("0 to 65535"));
  EXPECT_THAT(why("10.0.0.2:65536"), HasSubstr("0 to 65535"));
  EXPECT_THAT(why("10.0.0.2:74x"), HasSubstr("0 to 65535"));
  EXPECT_THAT(why("10.0.0:74"), HasSubstr("no IP address"));
  EXPECT_THAT(why("node-b:74"), HasSubstr("no IP address"));
  EXPECT_THAT(why("fd00::2:7400"), HasSubstr("in brackets"));
  EXPECT_THAT(why("[10.0.0.2]:7400"), HasSubstr("no IPv6"));
}

TEST(Address, OfAStrangerIsShownOnOneLineAndHoldsNothingUnseen) {
  using std::string_view_literals::operator""sv;
  EXPECT_THAT(parse_address("up\n\x1b[2J:1").error().message, HasSubstr("\"up\\x0a\\x1b[2J:1\""));
  EXPECT_LT(parse_address(std::string(4096, 'x')).error().message.size(), 256u);
  for (const std::string_view text : {"[fe80::1%eth\x1b[2J]:1"sv, "127.0.0.1\0evil:1"sv})
    EXPECT_THAT(parse_address(text).error().message, HasSubstr("no IP address")) << text;
}

}  // namespace
}  // namespace arcomm::net
