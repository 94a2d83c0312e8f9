#include "daemon/memory/id_table.h"

#include <gtest/gtest.h>

#include "daemon/memory/pool.h"

namespace arcomm {
namespace {

TEST(IdTable, AStaleIdIsNotFoundAfterItsIndexIsUsedAgain) {
  IdTable<int, BufferId> table;
  const BufferId first = table.insert(std::make_unique<int>(1));
  ASSERT_NE(table.find(first), nullptr);
  EXPECT_NE(table.erase(first), nullptr);
  const BufferId second = table.insert(std::make_unique<int>(2));
  EXPECT_EQ(second.index, first.index);
  EXPECT_NE(second.generation, first.generation);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(table.erase(first), nullptr);
  EXPECT_EQ(*table.find(second), 2);
}

TEST(IdTable, ZeroAndFarIdsAreNeverFound) {
  IdTable<int, BufferId> table;
  const BufferId id = table.insert(std::make_unique<int>(1));
  EXPECT_EQ(table.find(BufferId{}), nullptr);
  EXPECT_EQ(table.find(BufferId{id.index, 0}), nullptr);
  EXPECT_EQ(table.find(BufferId{0xffffffff, id.generation}), nullptr);
}

TEST(IdTable, PredictsTheNextId) {
  IdTable<int, BufferId> table;
  for (int i = 0; i < 5; ++i) {
    const BufferId expected = table.next_id();
    EXPECT_EQ(table.insert(std::make_unique<int>(i)), expected);
    if (i % 2 == 0) table.erase(expected);
  }
  EXPECT_EQ(table.size(), 2u);
}

TEST(Pool, GivesBackAndTakesAgainWithoutGrowing) {
  Pool<int> pool(4);
  int* const first = pool.take();
  EXPECT_EQ(pool.taken(), 1u);
  pool.give(first);
  EXPECT_EQ(pool.take(), first);
  for (int i = 0; i < 10; ++i) *pool.take() = i;
  EXPECT_EQ(pool.taken(), 11u);
}

}  // namespace
}  // namespace arcomm
