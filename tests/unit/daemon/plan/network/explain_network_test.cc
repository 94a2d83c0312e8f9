#include "daemon/plan/network/explain_network.h"

#include <gmock/gmock.h>

namespace arcomm {
namespace {

using testing::HasSubstr;

TEST(ExplainNetwork, SaysWhatIsChosenWhyAndWhatTheOthersWouldSend) {
  const Explanation got = explain_network({.count = 1 << 18, .nodes = 4}, NetworkPolicy{});
  EXPECT_EQ(got.chosen, "direct");
  EXPECT_EQ(got.runner_up, "ring");
  EXPECT_EQ(got.chosen_microseconds, 0);
  EXPECT_THAT(got.text, HasSubstr("4 nodes x 1 MiB float32: direct"));
  EXPECT_THAT(got.text, HasSubstr("exchange  1 step, each node sends 3 MiB to 3 nodes"));
  EXPECT_THAT(got.text, HasSubstr("direct    2 steps, each node sends 1.5 MiB to 3 nodes"));
  EXPECT_THAT(got.text, HasSubstr("ring      5 steps, each node sends 1.5 MiB to 2 nodes"));
  EXPECT_THAT(got.text, HasSubstr("in the order of ranks on each node, then of nodes"));
}

TEST(ExplainNetwork, SaysWhyThereIsNoRingAndWhatBoundsIt) {
  const NetworkPolicy forced{.algorithm = NetAlgorithm::Ring};
  const NetworkQuestion question{.count = 1 << 22, .dtype = DType::BFloat16, .nodes = 8};
  EXPECT_THAT(explain_network(question, forced).text, HasSubstr("net.order = \"ring\""));
  const NetworkPolicy allowed{.order = NetOrder::OfRing, .algorithm = NetAlgorithm::Ring};
  const Explanation got = explain_network(question, allowed);
  EXPECT_EQ(got.chosen, "ring");
  EXPECT_EQ(got.runner_up, "direct");
  EXPECT_THAT(got.text, HasSubstr("travel as float32; added up around the ring"));
  EXPECT_THAT(got.text, HasSubstr("chunks are of 128 KiB, 6 under way to a neighbour; what bounds "
                                  "them is staging, of which each neighbour has a window"));
  NetworkPolicy bounded = allowed;
  bounded.ring.max_bdp_bytes = 64 << 10;
  EXPECT_THAT(explain_network(question, bounded).text,
              HasSubstr("is the bandwidth-delay product (ring.max_bdp_bytes)"));
}

TEST(ExplainNetwork, WhatComesSecondIsNeverTheOneThatIsChosen) {
  for (std::uint32_t nodes = 2; nodes <= 40; ++nodes) {
    for (std::uint64_t count = 0; count <= 1 << 26; count = count * 8 + 1) {
      const Explanation got =
          explain_network({.count = count, .nodes = nodes}, {.order = NetOrder::OfRing});
      EXPECT_NE(got.chosen, got.runner_up);
    }
  }
}

}  // namespace
}  // namespace arcomm
