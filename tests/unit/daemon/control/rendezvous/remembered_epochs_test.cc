#include "daemon/control/rendezvous/remembered_epochs.h"

#include <gtest/gtest.h>

#include <cstring>

namespace arcomm {
namespace {

using Clock = RememberedEpochs::Clock;
using std::chrono::minutes;

UniqueIdBytes id_of(std::uint32_t number) {
  UniqueIdBytes id{};
  std::memcpy(id.data(), &number, sizeof(number));
  return id;
}

class RememberedEpochsTest : public ::testing::Test {
 protected:
  void remember(std::uint32_t number, uid_t uid) {
    epochs_.remember(id_of(number), {.uid = uid, .number = 7}, now_);
  }
  bool knows(std::uint32_t number) const { return epochs_.find(id_of(number), now_).has_value(); }

  RememberedEpochs epochs_;
  Clock::time_point now_ = Clock::now();
};

TEST_F(RememberedEpochsTest, KnowsWhoseAndWhichUntilItIsToldToForget) {
  remember(1, 1000);
  const auto found = epochs_.find(id_of(1), now_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uid, 1000u);
  EXPECT_EQ(found->number, 7u);
  epochs_.forget(id_of(1));
  epochs_.forget(id_of(2));
  EXPECT_FALSE(knows(1));
  EXPECT_EQ(epochs_.size(), 0u);
}

TEST_F(RememberedEpochsTest, ForgetsWhatIsOld) {
  remember(1, 1000);
  now_ += RememberedEpochs::kLifetime - minutes(1);
  EXPECT_TRUE(knows(1));
  now_ += minutes(1);
  EXPECT_FALSE(knows(1));
  remember(2, 2000);
  EXPECT_EQ(epochs_.size(), 1u) << "what is old takes no memory either";
}

TEST_F(RememberedEpochsTest, AUidsOwnOldestGivesWay) {
  remember(0, 2000);
  for (std::uint32_t i = 1; i <= RememberedEpochs::kMostOfUser + 1; ++i) remember(i, 1000);
  EXPECT_FALSE(knows(1));
  EXPECT_TRUE(knows(2));
  EXPECT_TRUE(knows(0)) << "another's gave way";
}

TEST_F(RememberedEpochsTest, ARangeOfUidsIsOneUser) {
  remember(0, 1000);
  for (std::uint32_t i = 1; i <= 65536; ++i) remember(i, 131072 + i % 65536);
  EXPECT_EQ(epochs_.size(), 1 + RememberedEpochs::kMostOfUser);
  EXPECT_TRUE(knows(0));
}

TEST_F(RememberedEpochsTest, OfManyUidsWhoHasMostGivesWay) {
  remember(0, 1000);
  for (std::uint32_t i = 1; i <= 70000; ++i) remember(i, 2000 + i % 100);
  EXPECT_EQ(epochs_.size(), RememberedEpochs::kMost);
  EXPECT_TRUE(knows(0)) << "lost to a hundred others, who have forty each";
}

}  // namespace
}  // namespace arcomm
