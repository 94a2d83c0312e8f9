#include "daemon/exec/net/host_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "daemon/exec/clock.h"
#include "daemon/plan/network/network_payload.h"
#include "tests/unit/daemon/exec/net/node_cluster.h"

namespace arcomm {
namespace {

using testing::HasSubstr;

constexpr NetAlgorithm kAlgorithms[] = {NetAlgorithm::Auto, NetAlgorithm::Exchange,
                                        NetAlgorithm::Direct, NetAlgorithm::Ring};

NetworkPolicy policy_of(NetAlgorithm algorithm) {
  return {
      .order = NetOrder::OfRing, .partials = NetPartials::Wide, .algorithm = algorithm, .ring = {}};
}

ClusterShape flat(std::uint32_t nodes, NetAlgorithm algorithm) {
  ClusterShape shape;
  for (std::uint32_t node = 0; node < nodes; ++node) shape.node_of_rank.push_back(node);
  shape.policy = policy_of(algorithm);
  return shape;
}

// Nodes in the order of their lowest ranks, each with 1 to 3 of them, anywhere.
ClusterShape random_shape(std::mt19937& random) {
  const auto nodes = static_cast<std::uint32_t>(2 + random() % 4);
  ClusterShape shape;
  for (std::uint32_t node = 0; node < nodes; ++node) shape.node_of_rank.push_back(node);
  if (random() % 2 == 0) {
    const std::size_t more = random() % 5;
    for (std::size_t i = 0; i < more; ++i)
      shape.node_of_rank.push_back(static_cast<std::uint32_t>(random() % nodes));
    std::shuffle(shape.node_of_rank.begin() + 1, shape.node_of_rank.end(), random);
    std::vector<std::uint32_t> name(nodes, nodes);
    std::uint32_t named = 0;
    for (std::uint32_t& node : shape.node_of_rank) {
      if (name[node] == nodes) name[node] = named++;
      node = name[node];
    }
  }
  shape.policy = policy_of(kAlgorithms[random() % 4]);
  if (random() % 4 == 0) shape.policy.partials = NetPartials::DType;
  if (random() % 4 == 0) shape.policy.order = NetOrder::OfRanks;
  shape.staging_bytes = (4 + random() % 8) << 20;  // from one slot for each peer to eight
  if (random() % 3 == 0) shape.policy.ring.bidirectional_max_bytes = -1;
  // Windows of one slot beside such of eight.
  if (random() % 3 == 0) {
    for (std::uint32_t node = 0; node < nodes; ++node)
      shape.staging_of_node.push_back((4 + random() % 8) << 20);
  }
  return shape;
}

CollectiveCall random_call(std::mt19937& random, std::uint32_t nodes) {
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 40'001};
  CollectiveCall call;
  call.count = kCounts[random() % std::size(kCounts)];
  if (random() % 8 == 0) call.count = random() % nodes;
  if (random() % 8 == 0) call.count = 100'000 + random() % 200'000;
  call.dtype = static_cast<DType>(random() % kDTypes);
  call.op = static_cast<ReduceOp>(random() % kReduceOps);
  call.in_place = random() % 2 == 0;
  call.on_last = random() % 2 == 0;
  return call;
}

Failure aborted() {
  return make_failure(ErrorCode::Aborted, Reason::RemoteAborted, 0, "rank 0 aborted");
}

TEST(HostNetwork, EveryShapeTypeAndOperationGivesTheSameBitsInAnyOrderOfEvents) {
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ClusterShape shape = random_shape(random);
    NodeCluster cluster(shape, seed);
    ASSERT_TRUE(cluster.form());
    const std::size_t calls = 1 + random() % 4;
    for (std::size_t i = 0; i < calls; ++i) cluster.call(random_call(random, shape.nodes()));
    ASSERT_EQ(cluster.run(), "");
    EXPECT_EQ(cluster.succeeded(), calls * shape.node_of_rank.size());
    EXPECT_EQ(cluster.end(), "");
  }
}

// Codecs beside none, as calls ask for them. What is expected is the golden codec's.
TEST(HostNetwork, EveryCodecGivesTheSameBitsOnAllNodesInAnyOrderOfEvents) {
  constexpr DType kTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ClusterShape shape = random_shape(random);
    shape.staging_bytes = 24 << 20;
    shape.staging_of_node.clear();
    NodeCluster cluster(shape, seed);
    ASSERT_TRUE(cluster.form());
    const std::size_t calls = 1 + random() % 4;
    for (std::size_t i = 0; i < calls; ++i) {
      CollectiveCall call = random_call(random, shape.nodes());
      call.codec = static_cast<Codec>(random() % kCodecs);
      if (call.codec != Codec::None) {
        call.dtype = kTypes[random() % std::size(kTypes)];
        call.op = random() % 2 == 0 ? ReduceOp::Sum : ReduceOp::Avg;
      }
      cluster.call(call);
    }
    ASSERT_EQ(cluster.run(), "");
    EXPECT_EQ(cluster.succeeded(), calls * shape.node_of_rank.size());
    EXPECT_EQ(cluster.end(), "");
  }
}

// A result's last chunk of one element takes fewer bytes as it is than as a block.
TEST(HostNetwork, ALastChunkThatABlockWouldMakeLongerTravelsAsItIs) {
  constexpr std::uint64_t kCount = 2 * 449 * kCodecBlock + 448 * kCodecBlock + 1;
  const NetworkQuestion question{
      .count = kCount, .dtype = DType::BFloat16, .nodes = 3, .codec = Codec::Q8};
  ASSERT_EQ(payload_chunk(question, DType::BFloat16, 449 * kCodecBlock, 128 << 10),
            448u * kCodecBlock);
  ASSERT_TRUE(result_is_coded(question, 448 * kCodecBlock));
  ASSERT_FALSE(result_is_coded(question, 1));
  NodeCluster cluster(flat(3, NetAlgorithm::Direct), 8);
  ASSERT_TRUE(cluster.form());
  for (int i = 0; i < 3; ++i)
    cluster.call(
        {.count = kCount, .dtype = DType::BFloat16, .in_place = i == 1, .codec = Codec::Q8});
  EXPECT_EQ(cluster.run(), "");
  EXPECT_EQ(cluster.succeeded(), 9u);
  EXPECT_EQ(cluster.end(), "");
}

// Several chunks for each room.
TEST(HostNetwork, LargeOperationsWithACodecUseTheirRoomsAgain) {
  for (const NetAlgorithm algorithm :
       {NetAlgorithm::Exchange, NetAlgorithm::Direct, NetAlgorithm::Ring}) {
    for (const DType dtype : {DType::BFloat16, DType::Float32}) {
      NodeCluster cluster(flat(3, algorithm), 6);
      ASSERT_TRUE(cluster.form());
      cluster.call(
          {.count = 1'500'001, .dtype = dtype, .in_place = true, .codec = Codec::Q8Rotated});
      cluster.call({.count = 1'500'001, .dtype = dtype, .on_last = true, .codec = Codec::Q4});
      EXPECT_EQ(cluster.run(), "") << static_cast<int>(algorithm);
      EXPECT_EQ(cluster.succeeded(), 6u);
      EXPECT_EQ(cluster.end(), "");
    }
  }
}

// Blocks that go on are decoded where they lie when they have left, and not before; of more nodes
// some go on to the one side and some to the other.
TEST(HostNetwork, BlocksGoRoundARingToOneSideAndToBoth) {
  for (const std::int64_t both : {0, -1}) {
    for (const std::uint32_t nodes : {2U, 3U, 4U, 5U}) {
      ClusterShape shape = flat(nodes, NetAlgorithm::Ring);
      shape.node_of_rank.push_back(0);  // a second rank there
      shape.policy.ring.bidirectional_max_bytes = both;
      shape.policy.ring.min_shard_bytes = 0;
      shape.staging_bytes = 32 << 20;
      NodeCluster cluster(shape, nodes);
      ASSERT_TRUE(cluster.form());
      for (const std::uint64_t count : {1ULL, 33ULL, 20'001ULL, 300'003ULL}) {
        cluster.call(
            {.count = count, .dtype = DType::BFloat16, .op = ReduceOp::Avg, .codec = Codec::Q6});
        cluster.call(
            {.count = count, .dtype = DType::Float32, .in_place = true, .codec = Codec::Q4Rotated});
      }
      EXPECT_EQ(cluster.run(), "") << nodes << " nodes, both ways up to " << both;
      EXPECT_EQ(cluster.succeeded(), 8u * (nodes + 1));
      EXPECT_EQ(cluster.end(), "");
    }
  }
}

TEST(HostNetwork, ACodecForWhichThereIsNoStagingIsRefusedByTheSettingsName) {
  ClusterShape shape = flat(3, NetAlgorithm::Exchange);
  shape.staging_bytes = 4 << 20;  // of which one communicator has half: the windows take it
  NodeCluster cluster(shape, 7);
  ASSERT_TRUE(cluster.form());
  cluster.call({.count = 100'000, .dtype = DType::Float32, .codec = Codec::Q8});
  EXPECT_EQ(cluster.run(), "");
  EXPECT_EQ(cluster.succeeded(), 0u);
  EXPECT_THAT(cluster.revoked(0).message(), HasSubstr("net.staging_bytes"));
}

TEST(HostNetwork, LargeOperationsGoThroughFewSlots) {
  for (const NetAlgorithm algorithm : kAlgorithms) {
    ClusterShape shape = flat(3, algorithm);
    shape.staging_bytes = 4 << 20;  // half of it for one: four slots for each peer at most
    NodeCluster cluster(shape, 5);
    ASSERT_TRUE(cluster.form());
    cluster.call({.count = 1'000'003, .dtype = DType::Float32, .in_place = true});
    cluster.call({.count = 1'000'003, .dtype = DType::Float32, .on_last = true});
    EXPECT_EQ(cluster.run(), "") << static_cast<int>(algorithm);
    EXPECT_EQ(cluster.succeeded(), 6u);
    EXPECT_EQ(cluster.end(), "");
  }
}

TEST(HostNetwork, WindowsOfEverySizeServeEachOther) {
  // What a node can take is half of its staging: 9 rooms, and a window of 1 to 8 slots for each of
  // two peers.
  constexpr std::uint64_t kSlot = 128 << 10, kRoomBytes = 9 * kSlot;
  const auto staging_for = [](std::uint64_t slots) { return 2 * (2 * slots * kSlot + kRoomBytes); };
  for (const NetAlgorithm algorithm : kAlgorithms) {
    for (const std::vector<std::uint64_t>& slots : std::vector<std::vector<std::uint64_t>>{
             {1, 1, 1}, {2, 2, 2}, {4, 4, 4}, {8, 8, 8}, {1, 8, 2}, {8, 1, 4}, {4, 2, 1}}) {
      SCOPED_TRACE(testing::PrintToString(slots) + " " +
                   std::to_string(static_cast<int>(algorithm)));
      ClusterShape shape = flat(3, algorithm);
      shape.node_of_rank = {0, 1, 2, 2};  // so that there are rooms
      for (const std::uint64_t one : slots) shape.staging_of_node.push_back(staging_for(one));
      NodeCluster cluster(shape, 11);
      ASSERT_TRUE(cluster.form());
      for (std::uint32_t node = 0; node < 3; ++node)
        ASSERT_EQ(cluster.pool(node).taken() * StagingPool::kGrain,
                  2 * slots[node] * kSlot + kRoomBytes);
      // Of few chunks and of many, so that what is not told yet differs from one to the next.
      for (const std::uint64_t count : {40'000u, 300'001u, 33'000u, 200'003u})
        cluster.call({.count = count, .dtype = DType::Float32, .in_place = count % 2 == 0});
      ASSERT_EQ(cluster.run(), "");
      EXPECT_EQ(cluster.succeeded(), 16u);
      EXPECT_EQ(cluster.end(), "");
    }
  }
}

TEST(HostNetwork, SmallOnesTravelWithTheirOffers) {
  NodeCluster cluster(flat(4, NetAlgorithm::Auto), 1);
  ASSERT_TRUE(cluster.form());
  cluster.call({.count = 256, .dtype = DType::Float32});
  ASSERT_EQ(cluster.run(), "");
  EXPECT_EQ(cluster.inlined(), 4u);
  EXPECT_EQ(cluster.end(), "");
}

TEST(HostNetwork, StagingThatIsShortIsRefusedByName) {
  ClusterShape shape = flat(5, NetAlgorithm::Auto);
  shape.staging_bytes = 256 << 10;
  NodeCluster cluster(shape, 1);
  const Status formed = cluster.form();
  ASSERT_FALSE(formed);
  EXPECT_EQ(formed.error().code, ErrorCode::ResourceExhausted);
  EXPECT_THAT(formed.error().message, HasSubstr("net.staging_bytes"));
}

// Buffers are freed when their operation is answered, and the sanitizer sees who comes later.
TEST(HostNetwork, NothingTouchesAnOperationsMemoryAfterItWasStopped) {
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ClusterShape shape = random_shape(random);
    NodeCluster cluster(shape, seed);
    ASSERT_TRUE(cluster.form());
    for (int i = 0; i < 3; ++i) cluster.call(random_call(random, shape.nodes()));
    cluster.go_on(static_cast<int>(random() % 600));
    cluster.revoke(static_cast<std::uint32_t>(random() % shape.nodes()), aborted());
    ASSERT_EQ(cluster.run(), "");
    EXPECT_EQ(cluster.end(), "");
  }
}

TEST(HostNetwork, ALostLinkGivesEverythingBack) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ClusterShape shape = random_shape(random);
    NodeCluster cluster(shape, seed);
    ASSERT_TRUE(cluster.form());
    for (int i = 0; i < 2; ++i) cluster.call(random_call(random, shape.nodes()));
    cluster.go_on(static_cast<int>(random() % 400));
    cluster.fabric().cut(0, 1);
    cluster.fabric().cut(1, 0);
    cluster.revoke(0, aborted());
    cluster.revoke(1, aborted());
    ASSERT_EQ(cluster.run(), "");
    EXPECT_EQ(cluster.end(), "");
  }
}

TEST(HostNetwork, APeerThatHoldsAStoppedOperationLosesItsLink) {
  for (const NetAlgorithm algorithm : kAlgorithms) {
    NodeCluster cluster(flat(2, algorithm), 3);
    ASSERT_TRUE(cluster.form());
    cluster.call({.count = 300'000, .dtype = DType::Float64, .in_place = true});
    cluster.go_on(400);
    ASSERT_FALSE(cluster.is_answered());
    cluster.fabric().freeze(0, 1);
    cluster.fabric().freeze(1, 0);
    cluster.go_on(400);
    cluster.revoke(0, aborted());
    ASSERT_EQ(cluster.run(), "");
    EXPECT_TRUE(cluster.fabric().severed().contains({0, 1}) ||
                cluster.fabric().severed().contains({1, 0}));
    EXPECT_EQ(cluster.end(), "");
  }
}

// Payloads of all communicators wait in one queue.
TEST(HostNetwork, APeerWhoseLinkMovesKeepsItUntilItsTurnHasCome) {
  for (const NetAlgorithm algorithm : kAlgorithms) {
    NodeCluster cluster(flat(2, algorithm), 3);
    ASSERT_TRUE(cluster.form());
    cluster.call({.count = 300'000, .dtype = DType::Float64, .in_place = true});
    cluster.go_on(400);
    ASSERT_FALSE(cluster.is_answered());
    cluster.fabric().freeze(0, 1);
    cluster.fabric().freeze(1, 0);
    cluster.go_on(400);
    cluster.fabric().let_others_move();
    cluster.revoke(0, aborted());
    const std::uint64_t until = now_ns() + 3 * StalledLinks::kMostHeldNs;
    while (now_ns() < until) cluster.go_on(64);
    EXPECT_FALSE(cluster.is_answered());
    cluster.fabric().thaw(0, 1);
    cluster.fabric().thaw(1, 0);
    ASSERT_EQ(cluster.run(), "");
    EXPECT_TRUE(cluster.fabric().severed().empty());
    EXPECT_EQ(cluster.end(), "");
  }
}

TEST(HostNetwork, APayloadThatCameChangedFailsTheOperationOnAllNodes) {
  for (const NetAlgorithm algorithm : kAlgorithms) {
    NodeCluster cluster(flat(3, algorithm), 9);
    ASSERT_TRUE(cluster.form());
    cluster.fabric().damage_next();
    cluster.call({.count = 200'000, .dtype = DType::Float32});
    ASSERT_EQ(cluster.run(), "");
    EXPECT_LT(cluster.succeeded(), 3u);
    bool is_named = false;
    for (std::uint32_t node = 0; node < 3; ++node)
      is_named |= cluster.revoked(node).reason == Reason::Corrupt;
    EXPECT_TRUE(is_named);
    EXPECT_EQ(cluster.end(), "");
  }
}

TEST(HostNetwork, StreamsOnThreadsOfTheirOwnSeeWhatTheWorkerSees) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ClusterShape shape = random_shape(random);
    NodeCluster cluster(shape, seed);
    ASSERT_TRUE(cluster.form());
    std::atomic<bool> stops{false};
    const auto carry = [&](std::uint32_t mine) {
      std::mt19937 own(mine);
      while (!stops.load(std::memory_order_relaxed)) {
        if (!cluster.fabric().step(own)) std::this_thread::yield();
      }
    };
    std::thread first(carry, seed * 2 + 1), second(carry, seed * 2 + 2);
    for (int i = 0; i < 4; ++i) cluster.call(random_call(random, shape.nodes()));
    const std::string wrong = cluster.run();
    const std::string left = cluster.end();
    stops = true;
    first.join();
    second.join();
    ASSERT_EQ(wrong, "");
    EXPECT_EQ(left, "");
  }
}

}  // namespace
}  // namespace arcomm
