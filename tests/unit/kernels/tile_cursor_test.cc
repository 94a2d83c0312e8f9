#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/host/launch.h"

namespace arcomm {
namespace {

// Four ranks of ones, in place.
class TileCursorTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kCount = 200'003;

  TileCursorTest() {
    args_ = AllReduceArgs::among(4, kCount, DType::Int32);
    for (std::uint32_t r = 0; r < 4; ++r) {
      ranks_[r].assign(kCount, 1);
      args_.inputs[r] = args_.outputs[r] = ranks_[r].data();
    }
  }

  // In place, so an element that two tiles covered would not be 4.
  bool all_are(std::int32_t value) const {
    for (const auto& rank : ranks_) {
      for (const std::int32_t element : rank) {
        if (element != value) return false;
      }
    }
    return true;
  }

  const Choice tiled_{.algorithm = Algorithm::Tiled, .tile_bytes = 4096, .streams = 3};
  std::vector<std::int32_t> ranks_[4];
  AllReduceArgs args_;
  TileCursor cursor_;
};

TEST_F(TileCursorTest, OneThreadReducesEverything) {
  cursor_.start(tiled_, args_);
  EXPECT_EQ(cursor_.tiles(), (kCount * 4 + 4095) / 4096);
  EXPECT_FALSE(cursor_.finished());
  while (cursor_.pull(tiled_, args_)) {
  }
  EXPECT_TRUE(cursor_.finished());
  EXPECT_TRUE(all_are(4));
}

TEST_F(TileCursorTest, SeveralThreadsReduceEveryElementOnce) {
  for (const Algorithm algorithm : {Algorithm::Tiled, Algorithm::TiledStreaming}) {
    for (auto& rank : ranks_) rank.assign(kCount, 1);
    Choice choice = tiled_;
    choice.algorithm = algorithm;
    cursor_.start(choice, args_);
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (cursor_.pull(choice, args_)) {
        }
      });
    }
    while (!cursor_.finished()) std::this_thread::yield();
    EXPECT_TRUE(all_are(4)) << name_of(
        algorithm);  // before the joins: finished() alone must be enough
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(TileCursorTest, AnInlineOperationIsOneTile) {
  cursor_.start(Choice{}, args_);
  EXPECT_TRUE(cursor_.pull(Choice{}, args_));
  EXPECT_FALSE(cursor_.pull(Choice{}, args_));
  EXPECT_TRUE(cursor_.finished());
  EXPECT_TRUE(all_are(4));
}

TEST_F(TileCursorTest, AnEmptyOperationIsFinishedAtOnce) {
  args_.count = 0;
  cursor_.start(tiled_, args_);
  EXPECT_TRUE(cursor_.finished());
  EXPECT_FALSE(cursor_.pull(tiled_, args_));
}

TEST_F(TileCursorTest, StopHandsOutNothingMore) {
  cursor_.start(tiled_, args_);
  EXPECT_TRUE(cursor_.pull(tiled_, args_));
  cursor_.stop();
  cursor_.stop();
  EXPECT_FALSE(cursor_.pull(tiled_, args_));
  EXPECT_TRUE(cursor_.finished());
  EXPECT_EQ(ranks_[0][0], 4);
  EXPECT_EQ(ranks_[0][kCount - 1], 1);
}

TEST_F(TileCursorTest, StopAmidPullersFinishesWhenTheyAreOut) {
  for (int round = 0; round < 50; ++round) {
    cursor_.start(tiled_, args_);
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (cursor_.pull(tiled_, args_)) {
        }
      });
    }
    cursor_.stop();
    while (!cursor_.finished()) std::this_thread::yield();
    ranks_[0][0] = 1;  // nobody touches it any more, or a sanitizer says so
    for (std::thread& thread : threads) thread.join();
  }
  SUCCEED();
}

}  // namespace
}  // namespace arcomm
