#include "client/src/host/ticket_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace arcomm::client {
namespace {

std::uint64_t ticket_of(const Operation& operation) {
  return operation.ticket.load();
}

TEST(TicketTable, NamesEachOpenOperationDifferently) {
  TicketTable table;
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    Operation* operation = table.open();
    ASSERT_NE(operation, nullptr);
    EXPECT_EQ(table.find(ticket_of(*operation)), operation);
    seen.insert(ticket_of(*operation));
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(seen.count(0), 0u);
}

TEST(TicketTable, SpendsATicketOnce) {
  TicketTable table;
  Operation* operation = table.open();
  const std::uint64_t ticket = ticket_of(*operation);
  EXPECT_TRUE(table.spend(*operation, ticket));
  EXPECT_FALSE(table.spend(*operation, ticket));
  EXPECT_EQ(table.find(ticket), nullptr);
}

TEST(TicketTable, TellsAReusedPlaceFromTheSpentTicket) {
  TicketTable table;
  Operation* first = table.open();
  const std::uint64_t spent = ticket_of(*first);
  table.spend(*first, spent);
  first->outcome.seq = 9;
  table.recycle(*first);
  Operation* second = table.open();
  EXPECT_EQ(second, first);
  EXPECT_NE(ticket_of(*second), spent);
  EXPECT_EQ(table.find(spent), nullptr);
  EXPECT_EQ(second->outcome.seq, kNoSeq);
}

TEST(TicketTable, KnowsNoInventedTicket) {
  TicketTable table;
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.find(UINT64_MAX), nullptr);
  table.open();
  EXPECT_EQ(table.find((std::uint64_t{1} << 32) | 200), nullptr);
}

TEST(TicketTable, GivesATicketToOneOfManyThreads) {
  TicketTable table;
  for (int round = 0; round < 200; ++round) {
    Operation* operation = table.open();
    const std::uint64_t ticket = ticket_of(*operation);
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { winners += table.spend(*operation, ticket) ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(winners.load(), 1);
    table.recycle(*operation);
  }
}

}  // namespace
}  // namespace arcomm::client
