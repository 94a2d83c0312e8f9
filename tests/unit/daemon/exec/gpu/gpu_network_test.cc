// Communicators of GPUs that span nodes: two GPU workers that are linked over TCP, with fake GPUs
// whose kernels between nodes are the host twins.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/plan/launch_table_builder.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"
#include "tests/unit/daemon/exec/net/linked_pair.h"

namespace arcomm::test {
namespace {

constexpr PeerId kFirstPeer = 0x1000;

// A node by itself: the fixture of GPU workers, several in a test.
class GpuNode final : public GpuWorkerTest {
 public:
  explicit GpuNode(std::size_t index) : wire(static_cast<int>(index) + 1) { SetUp(); }
  ~GpuNode() override { TearDown(); }
  void TestBody() override {}

  using GpuWorkerTest::eventually;
  using GpuWorkerTest::expect_closed;
  using GpuWorkerTest::expect_serving;
  using GpuWorkerTest::finish;
  using GpuWorkerTest::inspect;
  using GpuWorkerTest::plan;
  using GpuWorkerTest::rank;
  using GpuWorkerTest::try_plan;
  DeviceWorker& worker() { return *worker_; }
  FlightLog recorded() const { return recorder_->log(); }

  TestEndpoint wire;
};

class GpuNetwork : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMost = 1 << 20;  // elements of a rank

  void start(std::size_t nodes) {
    for (std::size_t i = 0; i < nodes; ++i) nodes_.push_back(std::make_unique<GpuNode>(i));
    for (std::size_t i = 0; i < nodes; ++i) {
      for (std::size_t j = i + 1; j < nodes; ++j) {
        auto [here, there] = link_specs(nodes_[i]->wire, kFirstPeer + i, name(i), nodes_[j]->wire,
                                        kFirstPeer + j, name(j), 2);
        open_link(*nodes_[i], std::move(here));
        open_link(*nodes_[j], std::move(there));
      }
    }
  }
  void TearDown() override {
    for (const auto& node : nodes_) node->finish();
    nodes_.clear();
  }
  static std::string name(std::size_t node) {
    return std::string("node-") + static_cast<char>('a' + node);
  }
  static void open_link(GpuNode& node, LinkSpec spec) {
    auto shared = std::make_shared<LinkSpec>(std::move(spec));
    const auto opened =
        await<void>([&](auto done) { node.worker().open_link(std::move(*shared), done); });
    EXPECT_TRUE(opened.ok()) << (opened ? "" : opened.error().to_string());
  }

  Result<std::vector<MemberId>> form_on(std::size_t node, const std::vector<std::uint32_t>& where,
                                        const std::vector<GpuRank*>& ranks) {
    CommunicatorSpec spec;
    spec.unique_id.fill(static_cast<std::byte>(number_));
    spec.node_of_rank = where;
    spec.here = static_cast<std::uint32_t>(node);
    spec.communicator = number_;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      spec.nodes.push_back({.peer = kFirstPeer + i, .name = name(i)});
    int gpu = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (where[rank] != node) continue;
      spec.ranks.push_back({ranks[rank]->client->id(),
                            static_cast<Rank>(rank),
                            "GPU-" + std::to_string(gpu++),
                            {"GPU-0"}});
    }
    return await<std::vector<MemberId>>(
        [&](auto done) { nodes_[node]->worker().form_communicator(spec, done); });
  }
  // Rank r on node where[r], each with a GPU of its own.
  std::vector<GpuRank*> group(const std::vector<std::uint32_t>& where) {
    where_ = where;
    std::vector<GpuRank*> ranks;
    std::vector<int> gpus(nodes_.size());
    for (const std::uint32_t node : where)
      ranks.push_back(&nodes_[node]->rank(gpus[node]++, kMost * sizeof(float)));
    ++number_;
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
      const auto formed = form_on(node, where, ranks);
      EXPECT_TRUE(formed.ok()) << (formed ? "" : formed.error().to_string());
      if (!formed) return {};
      auto member = formed->begin();
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (where[rank] == node) enter(*nodes_[node], *ranks[rank], *member++);
      }
    }
    return ranks;
  }
  // Rank r on node r.
  std::vector<GpuRank*> group() {
    std::vector<std::uint32_t> where(nodes_.size());
    std::iota(where.begin(), where.end(), 0);
    return group(where);
  }
  static void enter(GpuNode& node, GpuRank& rank, MemberId member) {
    rank.member = member;
    Result<MailboxDescriptors> box = await<MailboxDescriptors>(
        [&](auto done) { node.worker().export_mailbox(rank.client->id(), rank.member, done); });
    ASSERT_TRUE(box.ok()) << (box ? "" : box.error().to_string());
    rank.mailbox = Mapped(std::move(box->descriptors[0]), box->mailbox_bytes);
    rank.doorbells = Mapped(std::move(box->descriptors[1]), sizeof(HostPages));
    rank.exchange_bytes = box->exchange_bytes;
    rank.launches = box->launches;
  }
  static float element(std::size_t rank, std::uint64_t i, int round) {
    return static_cast<float>((i * 7 + rank * 13 + static_cast<std::uint64_t>(round)) % 251);
  }
  // Random enough, and exact in any order.
  void all_reduce(const std::vector<GpuRank*>& ranks, const std::vector<PlanId>& plans,
                  std::uint64_t count, int round) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::uint64_t i = 0; i < count; ++i) {
        ranks[rank]->send()[i] = element(rank, i, round);
        ranks[rank]->recv()[i] = -1;
      }
      ranks[rank]->start(plans[rank], LaunchPath::Launched);
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(ranks[rank]->wait(LaunchPath::Launched)) << "rank " << rank;
      for (std::uint64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (std::size_t other = 0; other < ranks.size(); ++other) sum += element(other, i, round);
        ASSERT_EQ(ranks[rank]->recv()[i], sum) << "rank " << rank << ", element " << i;
      }
    }
  }
  std::vector<PlanId> plans_for(const std::vector<GpuRank*>& ranks, std::uint64_t count,
                                milliseconds timeout = std::chrono::seconds(60)) {
    std::vector<PlanId> plans;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      plans.push_back(nodes_[where_[rank]]->plan(*ranks[rank], count, timeout));
    return plans;
  }

  std::uint64_t number_ = 40;
  std::vector<std::uint32_t> where_;  // the ranks of the last group
  std::vector<std::unique_ptr<GpuNode>> nodes_;
};

TEST_F(GpuNetwork, RanksOfTwoNodesGetTheSumsOfBothAtEverySize) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (const std::uint64_t count : {1ull, 1000ull, 4096ull, 100'003ull, 1ull << 20}) {
    const auto plans = plans_for(ranks, count);
    for (int round = 0; round < 3; ++round) {
      all_reduce(ranks, plans, count, round);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuNetwork, RanksOfThreeNodesGetTheSumsOfAll) {
  start(3);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 300'000);
  for (int round = 0; round < 3; ++round) {
    all_reduce(ranks, plans, 300'000, round);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuNetwork, EachStepBetweenNodesIsInTheFlightRecorder) {
  constexpr std::uint64_t kCount = 100'000, kBytes = kCount * sizeof(float);
  start(3);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, kCount);
  all_reduce(ranks, plans, kCount, 0);
  for (const auto& node : nodes_) {
    const auto is_done = [&] {
      const FlightLog log = node->recorded();
      return !log.operations.empty() && log.operations.back().done_ns != 0;
    };
    ASSERT_TRUE(node->eventually(is_done));
    const FlightLog log = node->recorded();
    const FlightRecord& record = log.operations.back();
    ASSERT_EQ(log.network.size(), 1u);
    const NetworkSteps& steps = log.network[0];
    EXPECT_EQ(steps.seq, record.seq);
    EXPECT_EQ(steps.nodes, 3u);
    EXPECT_EQ(steps.algorithm, record.algorithm);
    EXPECT_EQ(steps.sent_bytes, 2 * kBytes);
    EXPECT_EQ(steps.received_bytes, 2 * kBytes);
    for (const std::uint64_t step : {steps.posted_ns, steps.sent_ns, steps.arrived_ns}) {
      EXPECT_GE(step, record.agreed_ns);
      EXPECT_LE(step, record.done_ns);
    }
  }
}

TEST_F(GpuNetwork, ClientsAreOfferedNothingThatNeedsTheOtherRanksGpus) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(rank->exchange_bytes, 0u);
    EXPECT_EQ(rank->launches.ranks(), 2u);
    for (const std::uint64_t bytes : {0ull, 64ull, 1ull << 30})
      EXPECT_EQ(rank->launches.find({.bytes = bytes}).path, LaunchPath::Launched);
  }
  for (const auto& node : nodes_) {
    const std::vector<CommunicatorSnapshot> all = node->inspect().communicators;
    ASSERT_EQ(all.size(), 1u);
    const std::vector<LaunchStretch> told = stretches_of(*all[0].launches, DType::BFloat16);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].between_nodes, NetworkAlgorithm::Exchange) << "what `arctl comms` says";
    EXPECT_EQ(told[0].launched, std::nullopt);
    EXPECT_EQ(all[0].why_not_in_stream, "its ranks are on several nodes");
    ASSERT_EQ(all[0].ranks.size(), 2u);
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(all[0].ranks[rank].node, name(rank));
  }
}

TEST_F(GpuNetwork, OperationWithoutElementsEndsOnAllNodes) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto none = plans_for(ranks, 0);
  for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank]->start(none[rank], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
}

TEST_F(GpuNetwork, SeveralRanksOfANodeGetTheSumsOfAllAtEverySize) {
  start(2);
  for (const std::vector<std::uint32_t>& where :
       {std::vector<std::uint32_t>{0, 0, 1}, {1, 0, 1, 0, 1}}) {
    const auto ranks = group(where);
    ASSERT_EQ(ranks.size(), where.size());
    EXPECT_EQ(ranks[0]->launches.ranks(), where.size());
    for (const std::uint64_t count : {1ull, 1000ull, 100'003ull, 1ull << 20}) {
      const auto plans = plans_for(ranks, count);
      for (int round = 0; round < 3; ++round) {
        all_reduce(ranks, plans, count, round);
        if (HasFatalFailure()) return;
      }
    }
    const auto none = plans_for(ranks, 0);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank]->start(none[rank], LaunchPath::Launched);
    for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
  }
}

TEST_F(GpuNetwork, OneOfSeveralRanksOfANodeDiesAndAllHearOfIt) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  ranks[1]->start(plans[1], LaunchPath::Launched);
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[1]->worker().close_session(ranks[2]->client->id(), Reason::RemoteDied,
                                                  "it was killed", done);
              }).ok());
  for (const std::size_t rank : {0u, 1u})
    nodes_[where_[rank]]->expect_closed(*ranks[rank], ErrorCode::Aborted, Reason::RemoteDied, 2);
}

TEST_F(GpuNetwork, OneOfSeveralRanksOfANodeThatDoesNotCallIsNamed) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  const auto plans = plans_for(ranks, 1000, milliseconds(200));
  ranks[0]->start(plans[0], LaunchPath::Launched);
  ranks[1]->start(plans[1], LaunchPath::Launched);
  for (std::size_t rank = 0; rank < 3; ++rank)
    nodes_[where_[rank]]->expect_closed(*ranks[rank], ErrorCode::DeadlineExceeded, Reason::Timeout,
                                        2);
}

TEST_F(GpuNetwork, RankThatDoesNotCallIsNamedWhenTheDeadlinePasses) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000, milliseconds(200));
  ranks[0]->start(plans[0], LaunchPath::Launched);
  for (std::size_t node = 0; node < 2; ++node)
    nodes_[node]->expect_closed(*ranks[node], ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
}

TEST_F(GpuNetwork, DifferentCallsAreAMismatchOnBothNodes) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  ranks[0]->start(plans_for(ranks, 1000)[0], LaunchPath::Launched);
  ranks[1]->start(plans_for(ranks, 2000)[1], LaunchPath::Launched);
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
  }
}

TEST_F(GpuNetwork, DeathOfAClientIsHeardOnTheOtherNode) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  const auto closed = await<void>([&](auto done) {
    nodes_[1]->worker().close_session(ranks[1]->client->id(), Reason::RemoteDied, "it was killed",
                                      done);
  });
  EXPECT_TRUE(closed.ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteDied, 1);
  const auto others = group();
  ASSERT_EQ(others.size(), 2u);
  all_reduce(others, plans_for(others, 5000), 5000, 2);
}

TEST_F(GpuNetwork, RankThatLeavesInGoodOrderIsHeardOnTheOtherNode) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  const auto left = await<void>([&](auto done) {
    nodes_[1]->worker().leave_communicator(ranks[1]->client->id(), ranks[1]->member, done);
  });
  EXPECT_TRUE(left.ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Aborted, Reason::RemoteAborted, 1);
}

TEST_F(GpuNetwork, LinkThatIsLostEndsTheCommunicatorInTheMiddleOfAnOperation) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  const auto plans = plans_for(ranks, 1000);
  all_reduce(ranks, plans, 1000, 1);
  ranks[0]->start(plans[0], LaunchPath::Launched);
  const Error why = error(ErrorCode::Unavailable, Reason::RemoteDied, "it does not answer");
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[0]->worker().close_link(kFirstPeer + 1, why, done);
              }).ok());
  nodes_[0]->expect_closed(*ranks[0], ErrorCode::Unavailable, Reason::RemoteDied, 1);
  nodes_[0]->expect_serving(1000);
}

}  // namespace
}  // namespace arcomm::test
