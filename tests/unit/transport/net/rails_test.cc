#include "transport/net/rails.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "transport/net/addresses/subnet.h"

namespace arcomm::net {
namespace {

using testing::ElementsAre;

Interface interface(std::string host, std::uint32_t speed_mbits = 0, unsigned bits = 24) {
  return {.name = "eth",
          .host = std::move(host),
          .prefix_bits = bits,
          .is_up = true,
          .is_running = true,
          .speed_mbits = speed_mbits};
}
// "0-1": this side's first interface and the other's second.
std::vector<std::string> ends(const std::vector<Rail>& rails) {
  std::vector<std::string> all;
  for (const Rail& rail : rails)
    all.push_back(std::to_string(rail.here) + "-" + std::to_string(rail.there));
  return all;
}
std::vector<std::size_t> streams_of(const std::vector<Rail>& rails, std::size_t streams) {
  std::vector<std::size_t> counts(rails.size());
  for (const std::size_t rail : deal_streams(rails, streams)) ++counts[rail];
  return counts;
}

TEST(Rails, InterfacesOfOneNetworkArePairedWhateverTheirOrder) {
  const std::vector here{interface("10.0.0.1"), interface("10.1.0.1")};
  EXPECT_THAT(ends(pair_rails(here, std::vector<FarInterface>{{"10.1.0.2"}, {"10.0.0.2"}})),
              ElementsAre("1-0", "0-1"));
  EXPECT_THAT(ends(pair_rails(here, std::vector<FarInterface>{{"172.16.0.2"}, {"172.17.0.2"}})),
              ElementsAre("0-0", "1-1"))
      << "behind routers by their order";
}

TEST(Rails, UnequalNumbersUseAllInterfacesAndTheConnectingSideFindsItsOwn) {
  const std::vector one{interface("10.0.0.1")};
  const std::vector three{interface("10.0.0.1"), interface("10.0.0.3"), interface("10.0.0.5")};
  const std::vector<FarInterface> far_one{{"10.0.0.2"}}, far_two{{"10.0.0.2"}, {"10.0.0.4"}};
  EXPECT_THAT(ends(pair_rails(one, far_two)), ElementsAre("0-0", "0-1"));
  EXPECT_THAT(ends(pair_rails(three, far_one)), ElementsAre("0-0", "1-0", "2-0"));
  EXPECT_THAT(ends(pair_rails(three, far_two)), ElementsAre("0-0", "1-1", "2-0"));
  for (const auto& there : {far_one, far_two}) {
    std::set<std::uint32_t> numbers;
    for (const Rail& rail : pair_rails(three, there)) {
      EXPECT_EQ(far_end_of(rail.number, there.size()), rail.there);
      EXPECT_TRUE(numbers.insert(rail.number).second) << "no number twice";
    }
  }
}

TEST(Rails, FamiliesAreNotMixed) {
  const std::vector here{interface("fd00::1", 0, 64), interface("10.0.0.1")};
  EXPECT_THAT(ends(pair_rails(here, std::vector<FarInterface>{{"10.0.0.2"}, {"fd00::2"}})),
              ElementsAre("1-0", "0-1"));
  EXPECT_TRUE(pair_rails({}, std::vector<FarInterface>{{"10.0.0.2"}}).empty());
  EXPECT_TRUE(
      pair_rails(std::vector{interface("fd00::1", 0, 64)}, std::vector<FarInterface>{{"10.0.0.2"}})
          .empty());
}

TEST(Rails, StreamsAreDealtByTheSpeedOfTheSlowerEnd) {
  const std::vector here{interface("10.0.0.1", 100'000), interface("10.1.0.1", 100'000)};
  const std::vector<FarInterface> same{{"10.0.0.2", 100'000}, {"10.1.0.2", 100'000}};
  const std::vector<FarInterface> slower{{"10.0.0.2", 100'000}, {"10.1.0.2", 25'000}};
  const std::vector<FarInterface> slow{{"10.0.0.2", 100'000}, {"10.1.0.2", 1000}};
  EXPECT_THAT(streams_of(pair_rails(here, same), 8), ElementsAre(4, 4));
  EXPECT_THAT(streams_of(pair_rails(here, slower), 10), ElementsAre(8, 2));
  EXPECT_THAT(streams_of(pair_rails(here, slow), 8), ElementsAre(8, 0));
  EXPECT_THAT(deal_streams(pair_rails(here, same), 4), ElementsAre(0, 1, 0, 1)) << "in turns";
  const std::vector<FarInterface> faster_last{{"10.0.0.2", 25'000}, {"10.1.0.2", 100'000}};
  EXPECT_EQ(deal_streams(pair_rails(here, faster_last), 8).front(), 1u);
}

TEST(Rails, WhatIsNotKnownIsTakenForTheSlowestThatIs) {
  const std::vector here{interface("10.0.0.1", 100'000), interface("10.1.0.1", 25'000),
                         interface("10.2.0.1")};
  const std::vector<FarInterface> there{{"10.0.0.2"}, {"10.1.0.2"}, {"10.2.0.2"}};
  EXPECT_THAT(streams_of(pair_rails(here, there), 6), ElementsAre(4, 1, 1));
  const std::vector unknown{interface("10.0.0.1"), interface("10.1.0.1")};
  EXPECT_THAT(streams_of(pair_rails(unknown, there), 9), ElementsAre(3, 3, 3));
}

TEST(Rails, AnInterfacesSpeedIsSharedByItsRails) {
  const std::vector here{interface("10.0.0.1", 100'000)};
  const std::vector<FarInterface> there{{"10.0.0.2", 100'000}, {"10.0.0.4", 25'000}};
  EXPECT_THAT(streams_of(pair_rails(here, there), 6), ElementsAre(4, 2));
}

TEST(Subnet, HoldsWhatBeginsWithItsBits) {
  const Subnet ten = Subnet::parse("10.0.0.0/8").value();
  EXPECT_TRUE(ten.contains("10.255.1.2"));
  EXPECT_FALSE(ten.contains("11.0.0.1"));
  EXPECT_FALSE(ten.contains("a00::1"));
  EXPECT_TRUE(Subnet::parse("10.1.2.3/23").value().contains("10.1.3.4"));
  EXPECT_TRUE(Subnet::parse("0.0.0.0/0").value().contains("192.0.2.1"));
  EXPECT_TRUE(Subnet::parse("fe80::/10").value().contains("fe80::1%eth0"));
  EXPECT_FALSE(Subnet::parse("fd00::1").value().contains("fd00::2"));
  for (const char* wrong : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "fd00::/129", "eth0/8"})
    EXPECT_FALSE(Subnet::parse(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace arcomm::net
