// Communicators of GPUs that span nodes: GPU workers that are linked over TCP, with fake GPUs whose
// kernels between nodes are the host twins.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"
#include "tests/unit/daemon/exec/net/linked_pair.h"

namespace arcomm::test {

inline constexpr PeerId kFirstPeer = 0x1000;

// A node by itself: the fixture of GPU workers, several in a test.
class GpuNode final : public GpuWorkerTest {
 public:
  GpuNode(std::size_t index, std::uint64_t early_us, std::uint32_t sms)
      : wire(static_cast<int>(index) + 1) {
    sms_ = sms;
    Settings settings;
    settings.gpu.lease_ms = 20;
    settings.net.gpu_early_us = early_us;
    start(std::move(settings));
  }
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
  // Kernels between nodes, since the node began.
  int launches() const { return node_.network_launches; }
  int running() const { return node_.network_running; }
  // Whether kernels between nodes wait before they begin.
  void hold(bool held) { node_.network_held = held; }

  TestEndpoint wire;
};

class GpuNetwork : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMost = 1 << 20;  // elements of a rank

  void start(std::size_t nodes) {
    for (std::size_t i = 0; i < nodes; ++i)
      nodes_.push_back(std::make_unique<GpuNode>(i, early_us_, sms_));
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

  static std::vector<std::uint32_t> nodes_of(std::vector<std::uint32_t> where) {
    std::ranges::sort(where);
    where.erase(std::unique(where.begin(), where.end()), where.end());
    return where;
  }
  Result<std::vector<MemberId>> form_on(std::size_t node, const std::vector<std::uint32_t>& where,
                                        const std::vector<GpuRank*>& ranks) {
    CommunicatorSpec spec;
    spec.unique_id.fill(static_cast<std::byte>(number_));
    const std::vector<std::uint32_t> among = nodes_of(where);
    const auto index_of = [&](std::size_t one) {
      return static_cast<std::uint32_t>(std::ranges::find(among, one) - among.begin());
    };
    for (const std::uint32_t one : where) spec.node_of_rank.push_back(index_of(one));
    spec.here = index_of(node);
    spec.policy = policy_;
    spec.communicator = number_;
    for (const std::uint32_t one : among)
      spec.nodes.push_back({.peer = kFirstPeer + one, .name = name(one)});
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
    for (const std::uint32_t node : nodes_of(where)) {
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

  std::uint64_t early_us_ = Settings{}.net.gpu_early_us;  // of nodes to come
  std::uint32_t sms_ = 132;                               // of each of their GPUs
  std::uint64_t number_ = 40;
  NetworkPolicy policy_;              // of groups to come
  std::vector<std::uint32_t> where_;  // the ranks of the last group
  std::vector<std::unique_ptr<GpuNode>> nodes_;
};

}  // namespace arcomm::test
