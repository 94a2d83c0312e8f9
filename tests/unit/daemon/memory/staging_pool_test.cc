#include "daemon/memory/staging_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMegabyte = 1 << 20;

class StagingPoolTest : public testing::Test {
 protected:
  std::unique_ptr<HostDevice> device_ = HostDevice::create({}).value();
  StagingPool pool_{*device_, 16 * kMegabyte};
};

TEST_F(StagingPoolTest, DealsOutPartsThatDoNotTouchAndFitsThemTogetherAgain) {
  std::mt19937 random(7);
  std::vector<std::pair<uid_t, std::span<std::byte>>> held;
  for (int round = 0; round < 2000; ++round) {
    if (random() % 2 == 0) {
      const auto uid = static_cast<uid_t>(1000 + random() % 5);
      auto part = pool_.take(uid, 1 + random() % kMegabyte);
      if (!part) continue;
      for (const auto& [other, bytes] : held) {
        EXPECT_TRUE(part->data() >= bytes.data() + bytes.size() ||
                    part->data() + part->size() <= bytes.data());
      }
      std::ranges::fill(*part, std::byte{1});
      held.emplace_back(uid, *part);
    } else if (!held.empty()) {
      const std::size_t which = random() % held.size();
      pool_.give_back(held[which].first, held[which].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const auto& [uid, bytes] : held) pool_.give_back(uid, bytes);
  EXPECT_EQ(pool_.taken(), 0u);
  EXPECT_TRUE(pool_.take(1, 8 * kMegabyte));  // in one piece
}

TEST_F(StagingPoolTest, LeavesRoomForWhoComesLater) {
  std::uint64_t of_first = 0;
  while (pool_.take(1000, kMegabyte)) of_first += kMegabyte;
  EXPECT_EQ(of_first, 8 * kMegabyte);
  EXPECT_TRUE(pool_.take(1001, 4 * kMegabyte));
}

TEST_F(StagingPoolTest, NamesTheSettingAndWhoHasTheMostWhenItIsShort) {
  ASSERT_TRUE(pool_.take(1000, 8 * kMegabyte));
  const auto refused = pool_.take(1001, 6 * kMegabyte);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("net.staging_bytes (16777216)"));
  EXPECT_THAT(refused.error().message, HasSubstr("8388608, by uid 1000"));
  EXPECT_FALSE(pool_.take(1001, 1ull << 60));
}

TEST_F(StagingPoolTest, TakesNoMemoryBeforeSomebodyNeedsIt) {
  StagingPool beyond(*device_, 1ull << 55);
  EXPECT_EQ(beyond.bytes(), 1ull << 55);
  const auto refused = beyond.take(1, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("net.staging_bytes"));
}

}  // namespace
}  // namespace arcomm
