#include "transport/net/regions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace arcomm::net {
namespace {

// Whether a frame of a stranger's goes in; it may also be an error.
bool enters(Regions& regions, const FrameHeader& header) {
  const auto visit = regions.enter(header);
  return visit.ok() && static_cast<bool>(*visit);
}

FrameHeader put(RegionId region, std::uint64_t offset = 0, std::uint32_t length = 1) {
  return {.kind = FrameKind::Put, .length = length, .offset = offset, .region = region};
}

TEST(Regions, StayUntilTheLastVisitorHasLeft) {
  Regions regions;
  std::vector<std::byte> memory(10);
  const RegionId region = regions.add(memory, {}, {}).value();
  auto visit = regions.enter(put(region, 3));
  ASSERT_TRUE(visit.ok());
  EXPECT_EQ(Regions::place_of(*visit, put(region, 3)), memory.data() + 3);
  EXPECT_FALSE(regions.remove(region));
  EXPECT_FALSE(enters(regions, put(region))) << "nobody new once it is to go";
  *visit = {};
  EXPECT_TRUE(regions.remove(region));
  EXPECT_TRUE(regions.remove(region)) << "twice";
}

TEST(Regions, ANameThatWasGivenBackIsNeverTakenForItsSuccessor) {
  Regions regions;
  std::vector<std::byte> memory(10);
  const RegionId first = regions.add(memory, {}, {}).value();
  EXPECT_TRUE(regions.remove(first));
  const RegionId second = regions.add(memory, {}, {}).value();
  EXPECT_EQ(first % Regions::kMost, second % Regions::kMost) << "the same place";
  EXPECT_FALSE(enters(regions, put(first)));
  EXPECT_TRUE(enters(regions, put(second)));
  EXPECT_TRUE(regions.remove(first)) << "another's region is left alone";
  EXPECT_TRUE(enters(regions, put(second)));
}

TEST(Regions, AreBoundedAndUsedAgain) {
  Regions regions;
  std::vector<RegionId> all;
  for (std::size_t i = 0; i < Regions::kMost; ++i) all.push_back(regions.add({}, {}, {}).value());
  EXPECT_EQ(regions.add({}, {}, {}).error().code, ErrorCode::ResourceExhausted);
  EXPECT_TRUE(regions.remove(all[500]));
  EXPECT_TRUE(regions.add({}, {}, {}).ok());
}

TEST(Regions, NoNumberOfAStrangersLeadsOutside) {
  Regions regions;
  std::vector<std::byte> memory(10);
  const RegionId region = regions.add(memory, {}, {}).value();
  for (const RegionId wrong :
       {RegionId{0}, RegionId{1}, region + 1, ~RegionId{0}, region ^ RegionId{1} << 63})
    EXPECT_FALSE(enters(regions, put(wrong))) << wrong;
  EXPECT_EQ(regions.dropped(), 5u);
  EXPECT_EQ(regions.take_news().dropped, 5u);
  EXPECT_EQ(regions.take_news().dropped, 0u) << "each is told of once";
  EXPECT_TRUE(enters(regions, put(region, 9, 1)));
  EXPECT_TRUE(enters(regions, put(region, 10, 0)));
  EXPECT_FALSE(regions.enter(put(region, 10, 1)).ok());
  EXPECT_FALSE(regions.enter(put(region, ~0ULL, 1)).ok());
  EXPECT_FALSE(regions.enter(put(region, 0, 11)).ok());
  EXPECT_TRUE(regions.remove(region));
}

TEST(Regions, NamesAreNotToBeGuessedFromOthers) {
  Regions regions, others;
  EXPECT_NE(regions.add({}, {}, {}).value(), others.add({}, {}, {}).value());
  const RegionId first = regions.add({}, {}, {}).value(), second = regions.add({}, {}, {}).value();
  EXPECT_NE(first >> 32, second >> 32);
  EXPECT_NE(first >> 10 & 0x3fffff, second >> 10 & 0x3fffff) << "one in four million";
}

TEST(Regions, ComeAndGoWhilePeersTry) {
  Regions regions;
  std::atomic<bool> ends{false};
  std::atomic<RegionId> latest{0};
  std::thread peer([&] {
    while (!ends) {
      auto visit = regions.enter(put(latest));
      ASSERT_TRUE(visit.ok());
      if (*visit) *Regions::place_of(*visit, put(latest)) = std::byte{1};
    }
  });
  for (int i = 0; i < 2000; ++i) {
    auto memory = std::make_unique<std::vector<std::byte>>(1);
    const RegionId region = regions.add(*memory, {}, {}).value();
    latest = region;
    while (!regions.remove(region)) std::this_thread::yield();
    memory.reset();  // a late write would be one after free
  }
  ends = true;
  peer.join();
}

}  // namespace
}  // namespace arcomm::net
