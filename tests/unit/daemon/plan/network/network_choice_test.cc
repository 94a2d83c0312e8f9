#include "daemon/plan/network/network_choice.h"

#include <gtest/gtest.h>

#include "daemon/plan/network/network_load.h"
#include "daemon/plan/network/network_stages.h"

namespace arcomm {
namespace {

using enum NetworkAlgorithm;

NetworkQuestion question(std::uint32_t nodes, std::uint64_t bytes, DType dtype = DType::Float32) {
  return {.count = bytes / size_of(dtype), .dtype = dtype, .nodes = nodes};
}

TEST(NetworkChoice, BetweenTwoNodesEachCombinesHalfOfWhatIsLarge) {
  EXPECT_EQ(choose_network(question(2, 4), {}).algorithm, Exchange);
  EXPECT_EQ(choose_network(question(2, 320 << 10), {}).algorithm, Exchange);
  EXPECT_EQ(choose_network(question(2, (320 << 10) + 4), {}).algorithm, Direct);
  EXPECT_EQ(choose_network(question(2, 1ull << 30), {}).algorithm, Direct);
  // Where a step costs more, exchange lasts longer.
  EXPECT_EQ(choose_network(question(2, 4 << 20), {.step_bytes = 1 << 20}).algorithm, Exchange);
}

// Each element is encoded once between two, whatever the size; nobody goes round with sums that
// every node encodes anew, unless the operator says so.
TEST(NetworkChoice, WithACodecTwoNodesExchangeAndNoneGoRoundUnasked) {
  NetworkQuestion coded = question(2, 1ull << 30);
  coded.codec = Codec::Q4;
  EXPECT_EQ(choose_network(coded, {}).algorithm, Exchange);
  coded.nodes = 3;
  EXPECT_EQ(choose_network(coded, {}).algorithm, Direct);
  // An exchange of 96 KiB is as fast; so many blocks of 18 bytes are of 5461 * 32 elements.
  coded.count = 5461 * 32;
  EXPECT_EQ(choose_network(coded, {}).algorithm, Exchange);
  coded.count += 1 + 32;
  EXPECT_EQ(choose_network(coded, {}).algorithm, Direct);
  coded.nodes = 40;
  coded.count = 1 << 28;
  const NetworkPolicy ring{.order = NetOrder::OfRing, .algorithm = NetAlgorithm::Ring};
  EXPECT_EQ(choose_network(coded, {.order = NetOrder::OfRing}).algorithm, Direct);
  EXPECT_EQ(choose_network(coded, {.order = NetOrder::OfRing}).why,
            "a ring would encode sums anew on every node");
  EXPECT_EQ(choose_network(coded, ring).algorithm, Ring);
  // As without a codec: in an order of its own.
  EXPECT_EQ(choose_network(coded, {.algorithm = NetAlgorithm::Ring}).algorithm, Direct);
}

TEST(NetworkChoice, SmallOnesAreExchangedAndOthersGoThroughOwners) {
  EXPECT_EQ(choose_network(question(3, 96 << 10), {}).algorithm, Exchange);
  EXPECT_EQ(choose_network(question(3, (96 << 10) + 4), {}).algorithm, Direct);
  EXPECT_EQ(choose_network(question(16, 4 << 10), {}).algorithm, Exchange);
  EXPECT_EQ(choose_network(question(16, 8 << 10), {}).algorithm, Direct);
  EXPECT_EQ(choose_network(question(16, 1 << 30), {}).algorithm, Direct);
}

TEST(NetworkChoice, BeyondSixteenNodesItIsARingWhereTheOrderMayBeItsOwn) {
  const std::uint64_t bytes = 64 << 20;
  EXPECT_EQ(choose_network(question(17, bytes, DType::Int32), {}).algorithm, Ring);
  EXPECT_EQ(choose_network(question(17, bytes), {}).algorithm, Direct);
  EXPECT_EQ(choose_network(question(17, bytes), {.order = NetOrder::OfRing}).algorithm, Ring);
  EXPECT_EQ(choose_network(question(16, bytes), {.order = NetOrder::OfRing}).algorithm, Direct);
  // Shards of less than 128 KiB.
  EXPECT_EQ(choose_network(question(17, 2 << 20, DType::Int32), {}).algorithm, Direct);
}

TEST(NetworkChoice, MinAndMaxOfFloatsKeepTheOrderOfRanksToo) {
  NetworkQuestion minimum = question(32, 64 << 20);
  minimum.op = ReduceOp::Min;
  EXPECT_EQ(choose_network(minimum, {}).algorithm, Direct);
  minimum.dtype = DType::Uint32;
  EXPECT_EQ(choose_network(minimum, {}).algorithm, Ring);
}

TEST(NetworkChoice, WhatIsForcedIsTakenButNeverAnotherOrder) {
  NetworkPolicy policy{.algorithm = NetAlgorithm::Ring};
  EXPECT_EQ(choose_network(question(2, 1 << 20, DType::Int64), policy).algorithm, Ring);
  const NetworkChoice refused = choose_network(question(2, 1 << 20), policy);
  EXPECT_EQ(refused.algorithm, Direct);
  EXPECT_NE(refused.why.find("net.order"), refused.why.npos) << refused.why;
  policy.order = NetOrder::OfRing;
  EXPECT_EQ(choose_network(question(2, 1 << 20), policy).algorithm, Ring);
  policy.algorithm = NetAlgorithm::Exchange;
  EXPECT_EQ(choose_network(question(64, 1 << 30), policy).algorithm, Exchange);
  policy.algorithm = NetAlgorithm::Direct;
  EXPECT_EQ(choose_network(question(2, 4), policy).algorithm, Direct);
}

TEST(NetworkChoice, NoRingHasShardsBelowTheLeast) {
  NetworkPolicy policy{.algorithm = NetAlgorithm::Ring};
  EXPECT_EQ(choose_network(question(4, 64, DType::Int32), policy).algorithm, Ring);
  EXPECT_EQ(choose_network(question(4, 60, DType::Int32), policy).algorithm, Direct);
  policy.ring.min_shard_bytes = 0;
  EXPECT_EQ(choose_network(question(4, 60, DType::Int32), policy).algorithm, Ring);
}

TEST(NetworkChoice, PartialResultsTravelAsAccumulatorsUnlessTheyAreInputsOrMayBeRounded) {
  NetworkQuestion halves = question(3, 1 << 20, DType::BFloat16);
  EXPECT_EQ(choose_network(halves, {}).partials, DType::BFloat16);
  halves.one_seat_each = false;
  EXPECT_EQ(choose_network(halves, {}).partials, DType::Float32);
  EXPECT_EQ(choose_network(halves, {.partials = NetPartials::DType}).partials, DType::BFloat16);
  // What goes round a ring is a sum even where each node has one rank.
  halves.one_seat_each = true;
  const NetworkPolicy ring{.order = NetOrder::OfRing, .algorithm = NetAlgorithm::Ring};
  EXPECT_EQ(choose_network(halves, ring).partials, DType::Float32);
  EXPECT_EQ(choose_network(question(3, 1 << 20, DType::Float64), ring).partials, DType::Float64);
}

TEST(NetworkChoice, AnOwnerNeverGetsMoreThanAnExchangeWouldSend) {
  for (std::uint32_t nodes = 2; nodes <= 64; ++nodes) {
    for (std::uint64_t bytes = 64; bytes <= 1 << 30; bytes *= 4) {
      const NetworkChoice choice = choose_network(question(nodes, bytes, DType::Int32), {});
      NetworkChoice exchange = choice;
      exchange.algorithm = Exchange;
      const NetworkQuestion asked = question(nodes, bytes, DType::Int32);
      EXPECT_LE(network_load(asked, choice, false, 0).bytes_received,
                network_load(asked, exchange, false, 0).bytes_received);
    }
  }
}

TEST(NetworkChoice, NamesAreReadAsTheyAreWritten) {
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
    EXPECT_EQ(network_algorithm_of(text_of(algorithm)), algorithm);
  }
  EXPECT_FALSE(network_algorithm_of("tree"));
}

TEST(NetworkStages, AvgIsDividedAtTheEndAndRoundedWhereItMayBe) {
  const NetworkQuestion halves{
      .count = 1, .dtype = DType::Float16, .op = ReduceOp::Avg, .nodes = 2};
  EXPECT_EQ(reduce_ranks(halves, DType::Float32),
            (ReduceAs{DType::Float16, ReduceOp::Avg, ReduceStage::Partial}));
  EXPECT_EQ(reduce_on_the_way(halves, DType::Float32),
            (ReduceAs{DType::Float32, ReduceOp::Sum, ReduceStage::Whole}));
  EXPECT_EQ(reduce_partials(halves, DType::Float32),
            (ReduceAs{DType::Float16, ReduceOp::Avg, ReduceStage::Final}));
  EXPECT_EQ(reduce_ranks(halves, DType::Float16),
            (ReduceAs{DType::Float16, ReduceOp::Sum, ReduceStage::Whole}));
  EXPECT_EQ(reduce_on_the_way(halves, DType::Float16),
            (ReduceAs{DType::Float16, ReduceOp::Sum, ReduceStage::Whole}));
  EXPECT_EQ(reduce_partials(halves, DType::Float16),
            (ReduceAs{DType::Float16, ReduceOp::Avg, ReduceStage::Whole}));
}

}  // namespace
}  // namespace arcomm
