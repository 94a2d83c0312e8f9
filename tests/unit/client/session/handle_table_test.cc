#include "client/src/session/handle_table.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

TEST(HandleTable, FindsWhatWasInserted) {
  HandleTable<int> table;
  const std::uintptr_t handle = table.insert(std::make_shared<int>(5));
  ASSERT_NE(table.find(handle), nullptr);
  EXPECT_EQ(*table.find(handle), 5);
}

TEST(HandleTable, KnowsNoNullAndNoInventedHandle) {
  HandleTable<int> table;
  const std::uintptr_t handle = table.insert(std::make_shared<int>(5));
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(handle + 1), nullptr);
  EXPECT_EQ(table.find(handle + 16), nullptr);
  EXPECT_EQ(table.find(reinterpret_cast<std::uintptr_t>(&table)), nullptr);
  EXPECT_EQ(table.find(UINTPTR_MAX), nullptr);
}

TEST(HandleTable, ForgetsAHandleEvenWhenItsPlaceIsUsedAgain) {
  HandleTable<int> table;
  const std::uintptr_t first = table.insert(std::make_shared<int>(1));
  EXPECT_NE(table.take(first), nullptr);
  EXPECT_EQ(table.take(first), nullptr);
  const std::uintptr_t second = table.insert(std::make_shared<int>(2));
  EXPECT_NE(first, second);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(*table.find(second), 2);
}

TEST(HandleTable, TellsThatWhatWasFoundMayBeAnotherNow) {
  HandleTable<int> table;
  const std::uint64_t empty = table.changes();
  const std::uintptr_t handle = table.insert(std::make_shared<int>(1));
  const std::uint64_t inserted = table.changes();
  EXPECT_NE(inserted, empty);
  EXPECT_NE(table.find(handle), nullptr);
  EXPECT_EQ(table.changes(), inserted);
  table.note_change();
  const std::uint64_t noted = table.changes();
  EXPECT_NE(noted, inserted);
  EXPECT_NE(table.take(handle), nullptr);
  EXPECT_NE(table.changes(), noted);
}

}  // namespace
}  // namespace arcomm::client
