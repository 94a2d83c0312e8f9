// Several device workers in one process, linked over TCP on this machine, each with clients of its
// own: what daemons on several nodes would be, less their control plane.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/thread_cpu_clock.h"
#include "tests/unit/daemon/exec/net/linked_pair.h"
#include "tests/unit/daemon/exec/net/spanning_backend.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {

// node-a, node-b, ...
inline std::string name_of_node(std::size_t index) {
  return std::string("node-") + static_cast<char>('a' + index);
}

class TestNode {
 public:
  // is_simple: what runs between nodes is the InlineExecutor.
  explicit TestNode(std::size_t index, bool is_simple = true)
      : wire(static_cast<int>(index) + 1), peer(0x1000 + index), name(name_of_node(index)) {
    device_ = HostDevice::create({}).value();
    recorder_ = FlightRecorder::create(1024, 1024).value();
    worker = DeviceWorker::create(
                 {.device = device_->name(),
                  .open_backend = [this, is_simple](
                                      const BackendParts& parts) { return open(parts, is_simple); },
                  .recorder = *recorder_,
                  .metrics = metrics_,
                  .settings = std::make_shared<Settings>(),
                  .tuning = std::make_shared<TuningTable>(default_tuning()),
                  .events = {.session_lost = [](SessionId, Reason, const std::string&) {},
                             .communicator_revoked =
                                 [this](const UniqueIdBytes&, std::uint64_t, Reason reason,
                                        const std::string&) {
                                   const std::lock_guard lock(mutex);
                                   revoked.push_back(reason);
                                 },
                             .link_lost =
                                 [this](PeerId whose, const Error& why) {
                                   const std::lock_guard lock(mutex);
                                   lost.emplace_back(whose, why.message);
                                 }}})
                 .value();
    thread_ = std::thread([this] { worker->run(); });
  }
  ~TestNode() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    worker->stop();
    thread_.join();
    executor = nullptr;
  }
  std::vector<std::pair<PeerId, std::string>> links_lost() {
    const std::lock_guard lock(mutex);
    return lost;
  }

  // The worker's thread's.
  support::ThreadCpuClock cpu_clock() { return support::ThreadCpuClock(thread_.native_handle()); }
  FlightRecorder& recorder() { return *recorder_; }
  Metrics& metrics() { return metrics_; }

  TestEndpoint wire;
  const PeerId peer;
  const std::string name;
  std::atomic<InlineExecutor*> executor{nullptr};
  std::unique_ptr<DeviceWorker> worker;
  std::mutex mutex;
  std::vector<Reason> revoked;
  std::vector<std::pair<PeerId, std::string>> lost;

 private:
  Result<std::unique_ptr<Backend>> open(const BackendParts& parts, bool is_simple) {
    auto host = HostBackend::create(*device_, 1, parts.buffers, parts.tuning);
    if (!host) return std::move(host).error();
    if (!is_simple) return std::unique_ptr<Backend>(*std::move(host));
    return std::unique_ptr<Backend>(
        std::make_unique<SpanningBackend>(std::move(host).value(), executor));
  }

  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<FlightRecorder> recorder_;
  Metrics metrics_;
  std::thread thread_;
};

class NodesTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 16384;  // of a client's send, and of its recv behind it

  void TearDown() override {
    for (const auto& node : nodes_) node->stop();
    clients_.clear();
    nodes_.clear();
  }
  void start(std::size_t nodes, std::uint32_t streams = 1, bool is_simple = true) {
    for (std::size_t i = 0; i < nodes; ++i)
      nodes_.push_back(std::make_unique<TestNode>(i, is_simple));
    for (std::size_t i = 0; i < nodes; ++i) {
      for (std::size_t j = i + 1; j < nodes; ++j) link(i, j, streams);
    }
  }
  void link(std::size_t i, std::size_t j, std::uint32_t streams = 1) {
    TestNode &one = *nodes_[i], &other = *nodes_[j];
    auto [here, there] =
        link_specs(one.wire, one.peer, one.name, other.wire, other.peer, other.name, streams);
    open_link(one, std::move(here));
    open_link(other, std::move(there));
  }
  static void open_link(TestNode& node, LinkSpec spec) {
    auto shared = std::make_shared<LinkSpec>(std::move(spec));
    const auto opened =
        await<void>([&](auto done) { node.worker->open_link(std::move(*shared), done); });
    EXPECT_TRUE(opened.ok()) << (opened ? "" : opened.error().to_string());
  }
  Client& client(std::size_t node, pid_t pid = 0) {
    const SessionId id{next_session_++, 1};
    if (pid == 0) pid = static_cast<pid_t>(800 + clients_.size());
    clients_.push_back(
        std::make_unique<Client>(*nodes_[node]->worker, id, 64, pid, SessionLimits{}));
    clients_.back()->memory(2 * kBytes);
    clients_.back()->recv_offset = kBytes;
    return *clients_.back();
  }
  // A client for each rank, on these nodes.
  std::vector<Client*> group(const std::vector<std::uint32_t>& node_of_rank,
                             std::uint64_t number = 7) {
    std::vector<Client*> ranks;
    for (const std::uint32_t node : node_of_rank) ranks.push_back(&client(node));
    form(ranks, node_of_rank, number);
    return ranks;
  }
  Result<std::vector<MemberId>> form_on(std::size_t node, const std::vector<Client*>& ranks,
                                        const std::vector<std::uint32_t>& node_of_rank,
                                        std::uint64_t number) {
    CommunicatorSpec spec;
    spec.unique_id.fill(static_cast<std::byte>(number));
    spec.node_of_rank = node_of_rank;
    spec.here = static_cast<std::uint32_t>(node);
    spec.communicator = number;
    spec.policy = policy_;
    const std::uint32_t most = *std::max_element(node_of_rank.begin(), node_of_rank.end());
    for (std::uint32_t i = 0; i <= most; ++i)
      spec.nodes.push_back({.peer = nodes_[i]->peer, .name = nodes_[i]->name});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (node_of_rank[rank] == node)
        spec.ranks.push_back({ranks[rank]->id(), static_cast<Rank>(rank)});
    }
    auto formed = await<std::vector<MemberId>>(
        [&](auto done) { nodes_[node]->worker->form_communicator(spec, done); });
    if (!formed) return formed;
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (node_of_rank[rank] != node) continue;
      ranks[rank]->member = (*formed)[next++];
      ranks[rank]->seq = 0;
    }
    return formed;
  }
  void form(const std::vector<Client*>& ranks, const std::vector<std::uint32_t>& node_of_rank,
            std::uint64_t number = 7) {
    const std::uint32_t most = *std::max_element(node_of_rank.begin(), node_of_rank.end());
    for (std::uint32_t node = 0; node <= most; ++node) {
      const auto formed = form_on(node, ranks, node_of_rank, number);
      ASSERT_TRUE(formed.ok()) << formed.error().to_string();
    }
  }

  static ring::Completion next(Client& client) {
    const auto completion = client.next();
    EXPECT_TRUE(completion.has_value()) << "no completion";
    return completion.value_or(ring::Completion{});
  }
  static std::string text_of(const ring::Completion& completion) {
    return std::string(completion.detail);
  }
  static void expect(const ring::Completion& completion, Reason reason, const std::string& text) {
    EXPECT_EQ(reason_of(completion), reason) << text_of(completion);
    EXPECT_NE(text_of(completion).find(text), std::string::npos) << text_of(completion);
  }
  // The rank's input is filled with its number plus one.
  void fill(const std::vector<Client*>& ranks, std::size_t count) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      auto* input = ranks[rank]->last_memory().as<float>();
      for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(rank + 1);
    }
  }
  static bool until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  Result<void> leave(std::size_t node, Client& client) {
    return await<void>([&](auto done) {
      nodes_[node]->worker->leave_communicator(client.id(), client.member, done);
    });
  }
  // So many calls of the rank have been taken from its ring.
  bool has_taken(std::size_t node, Rank rank, std::uint64_t calls) {
    return until([&] {
      for (const CommunicatorSnapshot& communicator : inspect(node).communicators) {
        for (const RankSnapshot& seat : communicator.ranks) {
          if (seat.rank == rank && seat.next_seq == calls) return true;
        }
      }
      return false;
    });
  }
  WorkerSnapshot inspect(std::size_t node) {
    return await<WorkerSnapshot>([&](auto done) { nodes_[node]->worker->inspect(done); }).value();
  }

  NetworkPolicy policy_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint32_t next_session_ = 0;
};

}  // namespace arcomm::test
