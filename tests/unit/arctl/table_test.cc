#include "client/arctl/view/table.h"

#include <gtest/gtest.h>

namespace arcomm::arctl {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoTrailingBlanks) {
  Table table({{"NAME"}, {"N", Align::Right}, {"NOTE"}});
  table.add({"a", "1", ""});
  table.add({"longer", "1000", "x"});
  EXPECT_EQ(table.text(false),
            "NAME       N  NOTE\n"
            "a          1\n"
            "longer  1000  x\n");
}

TEST(Table, CountsCodePointsAndNotBytes) {
  Table table({{"N"}, {"M"}});
  table.add({"\xc3\xa9\xc3\xa9", "x"});
  table.add({"abc", "y"});
  EXPECT_EQ(table.text(false), "N    M\n\xc3\xa9\xc3\xa9   x\nabc  y\n");
}

TEST(Table, DoesNotLetANameSteerTheTerminal) {
  Table table({{"PROCESS"}});
  table.add({"evil\x1b[2J\nname"});
  EXPECT_EQ(table.text(false), "PROCESS\nevil?[2J?name\n");
}

TEST(Table, PaintsOnlyWhenAsked) {
  Table table({{"S"}});
  table.add({{"ready", Colour::Green}});
  EXPECT_EQ(table.text(false).find('\x1b'), std::string::npos);
  EXPECT_NE(table.text(true).find("\x1b[32mready\x1b[0m"), std::string::npos);
}

}  // namespace
}  // namespace arcomm::arctl
