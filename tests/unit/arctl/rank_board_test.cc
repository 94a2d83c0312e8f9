#include "client/arctl/bench/rank_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace arcomm::arctl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(RankBoard, LetsRanksGoOnlyWhenAllHaveArrived) {
  Result<RankBoard> board = RankBoard::create(3);
  ASSERT_TRUE(board.ok());
  std::atomic<int> before = 0;
  std::vector<std::thread> ranks;
  ranks.reserve(3);
  std::atomic<int> early = 0;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&] {
      for (int turn = 1; turn <= 200; ++turn) {
        before.fetch_add(1);
        EXPECT_TRUE(board->meet(Clock::now() + milliseconds(10'000)).ok());
        if (before.load() < 3 * turn) early.fetch_add(1);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(early.load(), 0);
}

TEST(RankBoard, SaysTimeoutWhenARankNeverComes) {
  Result<RankBoard> board = RankBoard::create(2);
  ASSERT_TRUE(board.ok());
  const auto start = Clock::now();
  const Status met = board->meet(start + milliseconds(80));
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().reason, Reason::Timeout);
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
}

TEST(RankBoard, SetsWaitersFreeWhenARankFails) {
  Result<RankBoard> board = RankBoard::create(2);
  ASSERT_TRUE(board.ok());
  std::thread failing(
      [&] { board->fail(1, error(ErrorCode::NotFound, Reason::NotRunning, "nobody there")); });
  const auto start = Clock::now();
  const Status met = board->meet(start + milliseconds(20'000));
  failing.join();
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::Aborted);
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  EXPECT_STREQ(board->page().slots[1].message, "nobody there");
}

TEST(RankBoard, RefusesADescriptorThatIsNone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueFd other(ends[1]);
  const Result<RankBoard> board = RankBoard::open(UniqueFd(ends[0]));
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace arcomm::arctl
