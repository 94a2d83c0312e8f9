#include "daemon/control/limits/client_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace arcomm {
namespace {

TEST(ClientGroupsTest, HoldForAGroupNoMoreThanItMayHaveItself) {
  ClientGroups book;
  const std::vector<MemoryGroup> groups{{.folder = "/g", .most_bytes = 100}};
  Result<GroupChargePtr> first = book.charge(groups, 60);
  ASSERT_TRUE(first.ok());
  const Result<GroupChargePtr> refused = book.charge(groups, 41);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(refused.error().reason, Reason::OutOfMemory);
  for (const char* told : {"/g", "100", "60", "41"})
    EXPECT_NE(refused.error().message.find(told), std::string::npos) << refused.error().message;
  EXPECT_TRUE(book.charge(groups, 40).ok());
  first->reset();
  EXPECT_EQ(book.held("/g"), 0u);
}

TEST(ClientGroupsTest, CountWhatPartsOfAGroupHaveAgainstTheWhole) {
  ClientGroups book;
  const MemoryGroup whole{.folder = "/g", .most_bytes = 100};
  const std::vector<MemoryGroup> one{whole, {.folder = "/g/1", .most_bytes = 1000}};
  const std::vector<MemoryGroup> other{whole, {.folder = "/g/2", .most_bytes = 30}};
  const Result<GroupChargePtr> kept = book.charge(one, 80);
  ASSERT_TRUE(kept.ok());
  EXPECT_FALSE(book.charge(other, 25).ok()) << "/g has 20 left";
  EXPECT_EQ(book.held("/g/2"), 0u) << "what was refused is charged to nobody";
  EXPECT_FALSE(book.charge({{.folder = "/h", .most_bytes = 10}}, 11).ok());
  const Result<GroupChargePtr> more = book.charge(other, 20);
  EXPECT_TRUE(more.ok());
  EXPECT_EQ(book.held("/g"), 100u);
}

TEST(ClientGroupsTest, HoldAnythingForAProcessWithoutALimit) {
  ClientGroups book;
  EXPECT_TRUE(book.charge({}, kNoMemoryLimit).ok());
}

TEST(ClientGroupsTest, AreAskedByNoMoreThanThereIs) {
  ClientGroups book;
  const Result<GroupChargePtr> kept = book.charge({{.folder = "/g", .most_bytes = 100}}, 90);
  ASSERT_TRUE(kept.ok());
  // A limit that was lowered meanwhile, and an amount that would wrap around.
  EXPECT_FALSE(book.charge({{.folder = "/g", .most_bytes = 50}}, 1).ok());
  EXPECT_FALSE(book.charge({{.folder = "/g", .most_bytes = 100}}, kNoMemoryLimit).ok());
}

}  // namespace
}  // namespace arcomm
