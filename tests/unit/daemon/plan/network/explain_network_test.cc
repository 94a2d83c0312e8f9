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

TEST(ExplainNetwork, OfACodecSaysWhatTravelsByEveryWay) {
  const Explanation got =
      explain_network({.count = 1 << 20, .nodes = 4, .codec = Codec::Q4}, NetworkPolicy{});
  EXPECT_EQ(got.chosen, "direct");
  EXPECT_THAT(got.text, HasSubstr("4 nodes x 4 MiB float32: direct"));
  EXPECT_THAT(got.text, HasSubstr("exchange  1 step, each node sends 1.688 MiB to 3 nodes"));
  EXPECT_THAT(got.text, HasSubstr("direct    2 steps, each node sends 864 KiB to 3 nodes"));
  EXPECT_THAT(got.text, HasSubstr("ring      5 steps, each node sends 864 KiB to 2 nodes"));
  EXPECT_THAT(got.text, HasSubstr("partial results travel as q4"));
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

TEST(ExplainNetwork, NamesTheMeasuredLinkAndWhatItWouldTake) {
  const NetworkQuestion question{.count = 1 << 18, .nodes = 4};
  EXPECT_THAT(explain_network(question, NetworkPolicy{}).text,
              HasSubstr("as sending 64 KiB: no link was measured (arctl tune --network)"));
  NetworkTuning measured{.source = "/state/tuning.network.toml"};
  measured.put({.address = "10.0.0.2:7400",
                .name = "node1",
                .latency_us = 100,
                .bytes_per_second = 1'000'000'000});
  const NetworkPolicy policy{.step_bytes = measured.step_bytes()};
  const Explanation got = explain_network(question, policy, measured);
  EXPECT_THAT(got.text, HasSubstr("as sending 97.66 KiB: measured with node1 at 10.0.0.2:7400, "
                                  "100.0 us and 1.00 GB/s each way, with copies; the slowest of 1 "
                                  "in /state/tuning.network.toml"));
  // Two steps, and 1.5 MiB.
  EXPECT_THAT(got.text, HasSubstr("each node sends 1.5 MiB to 3 nodes, about 1773 us"));
  EXPECT_NEAR(got.chosen_microseconds, 200 + 1572.864, 0.01);
  EXPECT_GT(got.runner_up_microseconds, got.chosen_microseconds);
}

TEST(ExplainNetwork, SaysWhichSettingsOfARingAreHeldToWhat) {
  NetworkPolicy policy{.order = NetOrder::OfRing, .algorithm = NetAlgorithm::Ring};
  policy.ring.chunk_bytes = 1 << 20;
  policy.ring.num_chunks = 64;
  policy.ring.max_blocks = 1;
  policy.ring.threads = 256;
  NetworkTuning measured{.source = "n.toml"};
  measured.put({.address = "a:1", .latency_us = 1000, .bytes_per_second = 2'000'000'000});
  const Explanation got = explain_network({.count = 1 << 22, .nodes = 8}, policy, measured);
  EXPECT_THAT(got.text, HasSubstr("what bounds them is staging"));
  EXPECT_THAT(got.text, HasSubstr("ring.chunk_bytes asks for 1 MiB, which is held to that"));
  EXPECT_THAT(got.text, HasSubstr("ring.num_chunks asks for 64, which is held to that"));
  EXPECT_THAT(got.text, HasSubstr("less than the 3.815 MiB which the measured link holds"));
  EXPECT_THAT(got.text, HasSubstr("1 block of 256 threads (ring.max_blocks, ring.threads)"));
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

TEST(ExplainNetwork, OfGpusItSaysThatTheyExchangeHowItIsCutAndWhichSettingsSayNothing) {
  // Of a host's, this would be direct.
  const Explanation got = explain_network_of_gpus(
      {.count = 1 << 20, .dtype = DType::BFloat16, .nodes = 4, .one_seat_each = true},
      NetworkPolicy{});
  EXPECT_EQ(got.chosen, "exchange");
  EXPECT_EQ(got.runner_up, "exchange");
  EXPECT_EQ(got.chosen_microseconds, 0);
  EXPECT_THAT(got.text, HasSubstr("4 nodes x 2 MiB bfloat16 between GPUs: exchange"));
  EXPECT_THAT(got.text, HasSubstr("exchange  1 step, each node sends 6 MiB to 3 nodes\n"));
  EXPECT_THAT(got.text, HasSubstr("32 chunks of at most 64 KiB to each node, over 8 of 8 lanes; on "
                                  "each node a kernel of 16 blocks"));
  EXPECT_THAT(got.text, HasSubstr("8 slots of 128 KiB for each node and way: 16 MiB of"));
  EXPECT_THAT(got.text, HasSubstr("partial results travel as bfloat16"));
  EXPECT_THAT(got.text, HasSubstr("net.algorithm, net.order, net.partials and ring.* say nothing"));
  EXPECT_THAT(got.text, Not(HasSubstr("direct")));
  EXPECT_THAT(got.text, Not(HasSubstr("max_blocks")));
}

TEST(ExplainNetwork, OfGpusANodeOfSeveralSendsAccumulatorsAndASmallOneHasOneLane) {
  const Explanation got = explain_network_of_gpus(
      {.count = 1024, .dtype = DType::Float16, .nodes = 2, .one_seat_each = false},
      NetworkPolicy{.gpu_lanes = 12});
  EXPECT_THAT(got.text, HasSubstr("each node sends 4 KiB to 1 node\n"));
  EXPECT_THAT(got.text, HasSubstr("1 chunk of at most 4 KiB to each node, over 1 of 12 lanes; on "
                                  "each node a kernel of 2 blocks"));
  EXPECT_THAT(got.text, HasSubstr("partial results travel as float32"));
}

TEST(ExplainNetwork, OfGpusWithACodecSaysWhatTravels) {
  const Explanation got = explain_network_of_gpus({.count = 1 << 20,
                                                   .dtype = DType::BFloat16,
                                                   .nodes = 4,
                                                   .one_seat_each = true,
                                                   .codec = Codec::Q8},
                                                  NetworkPolicy{});
  EXPECT_EQ(got.chosen, "exchange");
  EXPECT_THAT(got.text, HasSubstr("each node sends 3.188 MiB to 3 nodes\n"));
  EXPECT_THAT(got.text, HasSubstr("32 chunks of at most 34 KiB to each node, over 8 of 8 lanes"));
  EXPECT_THAT(got.text, HasSubstr("partial results travel as q8; added up in the order"));
}

TEST(ExplainNetwork, OfGpusTheMeasuredLinkSaysWhatTwoMessagesAndTheDataWouldTake) {
  NetworkTuning measured{.source = "n.toml"};
  measured.put({.address = "a:1", .latency_us = 100, .bytes_per_second = 1'000'000'000});
  const Explanation got =
      explain_network_of_gpus({.count = 250'000, .nodes = 2}, NetworkPolicy{}, measured);
  EXPECT_THAT(got.text, HasSubstr("to 1 node, about 1200 us"));
  EXPECT_THAT(got.text, HasSubstr("measured with a:1, 100.0 us and 1.00 GB/s each way"));
  EXPECT_NEAR(got.chosen_microseconds, 1200, 0.01);
}

TEST(ExplainNetwork, OfGpusNothingIsSentOfAnOperationWithoutElements) {
  const Explanation got = explain_network_of_gpus({.count = 0, .nodes = 2}, NetworkPolicy{});
  EXPECT_THAT(got.text, HasSubstr("each node sends 0 bytes to 1 node\n"));
  EXPECT_THAT(got.text, HasSubstr("nothing is launched"));
}

}  // namespace
}  // namespace arcomm
