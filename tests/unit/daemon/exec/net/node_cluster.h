// Several nodes of one communicator in one process, for tests: each with its table, staging and
// HostNetwork, over a NodeFabric. What the worker and the agreement between nodes do is done here,
// in any order that they could. Buffers are allocated to the byte and freed as soon as their
// operation has been answered, so that a sanitizer sees who touches them later. Thread: the
// caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/net/host_network.h"
#include "daemon/memory/staging_pool.h"
#include "tests/unit/daemon/exec/net/node_fabric.h"
#include "transport/device/host/host_device.h"

namespace arcomm {

struct ClusterShape {
  std::vector<std::uint32_t> node_of_rank;
  NetworkPolicy policy;
  std::uint64_t staging_bytes = 24ull << 20;
  std::vector<std::uint64_t> staging_of_node = {};  // where they differ

  std::uint32_t nodes() const;
  std::uint64_t staging_of(std::uint32_t node) const {
    return node < staging_of_node.size() ? staging_of_node[node] : staging_bytes;
  }
};

// One collective call of all ranks.
struct CollectiveCall {
  std::uint64_t count = 0;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  bool in_place = false;
  bool on_last = false;  // what it sends is what the call before received, where they are alike
  Codec codec = Codec::None;
};

class NodeCluster final : private OfferedData {
 public:
  NodeCluster(const ClusterShape& shape, std::uint32_t seed);
  ~NodeCluster() override;

  Status form();  // of the first node that cannot
  // All ranks call; the operation runs as run() goes on.
  void call(const CollectiveCall& call);
  // Until everything that was called has been answered. Empty: each result is right, bit for bit,
  // or, where the communicator was revoked, was answered with an error.
  std::string run();
  // So many moments of it.
  void go_on(int moments);
  bool is_answered() const { return answered_ == called_; }
  // On one node, and on the others some time later, as their messages arrive.
  void revoke(std::uint32_t node, const Failure& why);
  // Everybody leaves. Empty: all staging is back.
  std::string end();

  bool is_revoked(std::uint32_t node) const { return !nodes_[node]->communicator->ready(); }
  const Failure& revoked(std::uint32_t node) const { return nodes_[node]->communicator->revoked; }
  std::uint64_t succeeded() const { return succeeded_; }
  std::uint64_t inlined() const { return inlined_; }
  NodeFabric& fabric() { return *fabric_; }
  std::mt19937& random() { return random_; }
  StagingPool& pool(std::uint32_t node) { return nodes_[node]->pool; }

 private:
  using Memory = std::shared_ptr<std::byte[]>;
  struct RankCall {
    Operation operation;
    Memory send, recv;             // the same in place; let go of when it has been answered
    std::vector<std::byte> input;  // what is sent
  };
  struct Call {
    CollectiveCall what;
    std::vector<RankCall> ranks;
    std::vector<std::byte> expected;
    std::vector<bool> offered;  // by node: all its ranks have called
    std::vector<bool> agreed;   // by node: it knows that all nodes have
  };
  struct Node {
    Node(Device& device, std::uint64_t staging, Links& links)
        : pool(device, staging), network(pool, links) {}
    StagingPool pool;
    HostNetwork network;
    CommunicatorTable table{[this](Communicator& revoked) { network.stop(revoked); }};
    Communicator* communicator = nullptr;
    std::vector<MemberId> members;
    std::vector<std::uint64_t> next_call;  // by seat: the index of the one that its rank makes next
    std::map<std::uint64_t, std::vector<std::uint64_t>> offers;  // by seq: what went with it
    std::map<std::uint64_t, std::size_t> offer_bytes;
  };

  std::span<const std::byte> inline_data(const Communicator& communicator, std::uint64_t seq,
                                         std::uint32_t node) const override;
  std::uint64_t turn_of(const Communicator&, std::uint64_t) const override { return 0; }
  void moment();
  void arrive(std::uint32_t node);
  void agree(std::uint32_t node);
  void work(Node& node);
  void settle(Node& node);
  void answer(Operation& operation);
  void expect(Call& call) const;

  ClusterShape shape_;
  std::mt19937 random_;
  std::vector<World> worlds_;  // by node
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<NodeFabric> fabric_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<Call> calls_;
  std::uint64_t called_ = 0, answered_ = 0;  // of ranks
  std::uint64_t succeeded_ = 0, inlined_ = 0;
  std::string wrong_;
  std::vector<std::pair<std::uint32_t, Failure>> revoking_;  // nodes that have still to hear of it
};

}  // namespace arcomm
