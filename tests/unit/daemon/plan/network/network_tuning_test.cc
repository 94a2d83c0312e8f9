#include "daemon/plan/network/network_tuning.h"

#include <gmock/gmock.h>

#include <string>

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {
namespace {

using testing::HasSubstr;

NetworkTuning sample() {
  NetworkTuning tuning{.node = "node0", .streams = 4, .interfaces = "eth*", .links = {}};
  tuning.put({.address = "10.0.0.3:7400",
              .name = "node2",
              .latency_us = 40,
              .bytes_per_second = 1'000'000'000,
              .without_copies = false});
  tuning.put({.address = "10.0.0.2:7400",
              .name = "node\"1\\",
              .latency_us = 12.25,
              .bytes_per_second = 10'000'000'000,
              .without_copies = true});
  return tuning;
}
NetworkSetup setup() {
  return {.node = "node0",
          .streams = 4,
          .interfaces = "eth*",
          .peers = {"10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"}};
}
std::string mistake(const std::string& text, const NetworkSetup& here = setup()) {
  const Result<NetworkTuning> read = parse_network_tuning(text, "n.toml", here);
  return read ? "none" : read.error().message;
}
std::string with(std::string text, const std::string& what, const std::string& instead) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

TEST(NetworkTuning, IsReadBackAsItWasPrinted) {
  const Result<NetworkTuning> read =
      parse_network_tuning(print_network_tuning(sample()), "n.toml", setup());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, sample());
  EXPECT_EQ(read->source, "n.toml");
  EXPECT_EQ(read->links.front().address, "10.0.0.2:7400") << "sorted";
}

TEST(NetworkTuning, OfAnotherNodeOrOtherSettingsIsRefusedByLineAndName) {
  const std::string text = print_network_tuning(sample());
  NetworkSetup other = setup();
  other.node = "node7";
  EXPECT_THAT(mistake(text, other), HasSubstr("n.toml:4: node = \"node0\" when this was measured, "
                                              "and this node is node7"));
  other = setup();
  other.streams = 0;
  EXPECT_THAT(mistake(text, other), HasSubstr("n.toml:5: streams = \"4\""));
  other = setup();
  other.interfaces = "ib0";
  EXPECT_THAT(mistake(text, other), HasSubstr("n.toml:6: interfaces = \"eth*\""));
}

TEST(NetworkTuning, WithPeersThatAreNotInTheListIsRefusedByLineAndName) {
  NetworkSetup other = setup();
  other.peers.pop_back();
  EXPECT_THAT(mistake(print_network_tuning(sample()), other),
              testing::AllOf(HasSubstr("n.toml:16: peer \"10.0.0.3:7400\" is not in net.peers"),
                             HasSubstr("arctl tune --network")));
}

TEST(NetworkTuning, OfAnotherVersionOrWithMistakesIsRefused) {
  const std::string text = print_network_tuning(sample());
  EXPECT_THAT(mistake(with(text, "format = 1", "format = 2")), HasSubstr("another version"));
  EXPECT_THAT(mistake(with(text, "latency_us = 12.25", "latency_us = -1.0")),
              HasSubstr("latency_us must be above 0"));
  EXPECT_THAT(mistake(with(text, "latency_us = 12.25", "latency_us = nan")),
              HasSubstr("latency_us must be above 0"));
  EXPECT_THAT(mistake(with(text, "bytes_per_second = 10000000000", "bytes_per_second = 0")),
              HasSubstr("bytes_per_second"));
  EXPECT_THAT(mistake(with(text, "without_copies = true", "without_copies = 3")),
              HasSubstr("without_copies must be true or false"));
  EXPECT_THAT(mistake(with(text, "name =", "nome =")), HasSubstr("unknown key 'nome'"));
  EXPECT_THAT(mistake(with(text, "10.0.0.3:7400", "10.0.0.2:7400")), HasSubstr("is there twice"));
  EXPECT_THAT(mistake("["), HasSubstr("n.toml:1"));
  EXPECT_EQ(load_network_tuning("/no/such/file", setup()).error().code, ErrorCode::NotFound);
}

TEST(NetworkTuning, ItsSlowestLinkSaysWhatAStepCosts) {
  EXPECT_EQ(NetworkTuning{}.step_bytes(), kUsualStepBytes);
  EXPECT_EQ(sample().slowest()->name, "node2");
  EXPECT_EQ(sample().step_bytes(), 40'000u);
  EXPECT_EQ(sample().bytes_per_second(), sample().slowest()->bytes_per_second);
  EXPECT_EQ(NetworkTuning{}.bytes_per_second(), 0u) << "not measured";
  NetworkTuning extreme = sample();
  extreme.links[0].latency_us = 9e6;
  EXPECT_EQ(extreme.step_bytes(), kMostStepBytes);
  extreme.links = {{.address = "a:1", .latency_us = 0.01, .bytes_per_second = 1000}};
  EXPECT_EQ(extreme.step_bytes(), kLeastStepBytes);
}

// Between four nodes an exchange is worth step_bytes * 4 / 6.
TEST(NetworkTuning, WhatAStepCostsDecidesBetweenExchangeAndDirect) {
  const NetworkQuestion question{.count = 32 << 10, .nodes = 4};  // 128 KiB
  EXPECT_EQ(choose_network(question, NetworkPolicy{}).algorithm, NetworkAlgorithm::Direct);
  NetworkPolicy far;
  far.step_bytes = 1 << 20;
  EXPECT_EQ(choose_network(question, far).algorithm, NetworkAlgorithm::Exchange);
  // And from which size on many nodes take a ring.
  const NetworkQuestion many{.count = 4 << 20, .nodes = 32};  // shards of 512 KiB
  NetworkPolicy ring{.order = NetOrder::OfRing};
  EXPECT_EQ(choose_network(many, ring).algorithm, NetworkAlgorithm::Ring);
  ring.step_bytes = 1 << 20;
  EXPECT_EQ(choose_network(many, ring).algorithm, NetworkAlgorithm::Direct);
}

}  // namespace
}  // namespace arcomm
