// What GpuLauncher promises of pinned host memory, and GpuQueues of operations between nodes: each
// rank is a node of its own here, and the case is their proxy.
#include <sys/mman.h>

#include <array>
#include <span>

#include "daemon/proxy/adaptive_wait.h"
#include "daemon/proxy/proxy_engine.h"
#include "kernels/network/ring_steps.h"
#include "tests/conformance/gpu_hardware/fixture.h"
#include "tests/support/sessions/memory_link.h"

namespace arcomm {
namespace {

class GpuNetworkConformance : public GpuHardwareConformance, public proxy::ProxyEvents {
 protected:
  static constexpr std::uint32_t kNodes = kRanks;
  static constexpr std::uint64_t kChunk = 256;  // elements: several chunks of kCount, the last cut
  static constexpr std::uint32_t kMostBytes = kChunk * sizeof(float);
  static constexpr std::uint64_t kSlotsBytes = std::uint64_t{kFifoSteps} * kMostBytes;
  static constexpr std::uint64_t kPorts = NetworkCall::ports_of(kNodes, 1);
  static constexpr std::uint32_t kNumber = 5;

  // Where a node's kernel and its proxy meet, in pinned memory.
  struct Shared {
    DeviceFifo fifos[kPorts];
    alignas(128) std::uint64_t verdict;
    alignas(128) std::byte slots[kPorts][kSlotsBytes];
  };
  // In its GPU's.
  struct Own {
    NetworkWords words;
    FifoPort ports[kPorts];
    std::uint64_t steps[kPorts];
  };

  void SetUp() override {
    GpuHardwareConformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    pinned_ = pin(launcher(0), kNodes * sizeof(Shared));
    ASSERT_FALSE(pinned_.empty());
    for (Rank node = 0; node < kNodes; ++node) {
      const Status loaded = launcher(node).load_network();
      ASSERT_TRUE(loaded) << loaded.error().to_string();
      ASSERT_NO_FATAL_FAILURE(open(node));
    }
  }
  void TearDown() override {
    for (bool is_gone = false; !is_gone;) {
      is_gone = true;
      for (std::uint64_t node = 0; node < kNodes; ++node)
        engine_.fail_group(node, error(ErrorCode::Cancelled, Reason::None, "the end"));
      engine_.progress(proxy::AdaptiveWait::now_ns());
      for (const proxy::FifoId id : ids_) is_gone = engine_.remove(id) && is_gone;
    }
    GpuHardwareConformance::TearDown();
  }
  void group_failed(std::uint64_t, const Error&) override {}

  // Pinned for as long as the process runs, and so never unmapped.
  static std::span<std::byte> pin(GpuLauncher& launcher, std::size_t bytes) {
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return {};
    const std::span memory(static_cast<std::byte*>(pages), bytes);
    const Status pinned = launcher.pin(memory);
    EXPECT_TRUE(pinned) << pinned.error().to_string();
    return memory;
  }

  Shared& shared(Rank node) const { return reinterpret_cast<Shared*>(pinned_.data())[node]; }
  Own* own(Rank node) const { return reinterpret_cast<Own*>(more_[node].data()); }

  // The FIFOs of one node to the other.
  void open(Rank node) {
    more_.push_back(cleared(node, sizeof(Own)));
    const Rank peer = 1 - node;
    std::array<FifoPort, kPorts> ports{};
    for (const FifoDirection direction : {FifoDirection::Send, FifoDirection::Receive}) {
      const std::uint64_t index = NetworkCall{.nodes = kNodes}.port_index(0, peer, direction);
      const std::span<std::byte> slots(shared(node).slots[index]);
      proxy::FifoConfig config;
      config.direction = direction;
      config.fifo = &shared(node).fifos[index];
      config.memory = {.mode = SlotMode::Normal, .most_bytes = kMostBytes, .slots = slots};
      config.wire = &link_.end(static_cast<int>(node));
      config.peer = static_cast<int>(peer);
      config.peer_name = "node " + std::to_string(peer);
      config.group = node;
      config.orders = orders_.emplace_back(std::make_shared<proxy::FifoOrders>());
      const Result<proxy::FifoId> added = engine_.add(config);
      ASSERT_TRUE(added) << added.error().to_string();
      ids_.push_back(*added);
      ports[index] = {.fifo = config.fifo,
                      .memory = reinterpret_cast<unsigned char*>(slots.data()),
                      .memory_bytes = slots.size(),
                      .most_bytes = kMostBytes,
                      .peer = config.peer,
                      .steps = &own(node)->steps[index]};
    }
    ASSERT_TRUE(node_->copy_in(node, own(node)->ports, ports.data(), sizeof(ports)));
  }

  // The node's part; its client waits for an operation of number 1.
  NetworkLaunch part(Rank node, std::chrono::nanoseconds timeout = kPatience) {
    NetworkLaunch made{.call = {.partial = parts_[node].send.data(),
                                .result = parts_[node].recv.data(),
                                .count = kCount,
                                .timeout_ns = static_cast<std::uint64_t>(timeout.count()),
                                .node = node,
                                .nodes = kNodes,
                                .chunk_elements = kChunk,
                                .ports = own(node)->ports},
                       .words = &own(node)->words,
                       .verdict = &shared(node).verdict,
                       .number = kNumber};
    made.waiters[0] = {.done = &mailbox(node)->paths[kPath].done, .number = 1};
    return made;
  }
  void launch_node(Rank node, const NetworkLaunch& part) {
    const std::uint64_t steps = exchange_steps(part.call, 0);
    const std::uint64_t until = proxy::AdaptiveWait::now_ns() + 2 * part.call.timeout_ns;
    for (std::size_t fifo = 0; fifo < 2; ++fifo)
      ASSERT_TRUE(orders_[2 * node + fifo]->begin(steps, until));
    const Status launched = launcher(node).launch_network(seat(node).queue, part);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  // The proxy goes on until the node's kernel has ended.
  Done verdict(Rank node) {
    EXPECT_TRUE(eventually([&] {
      while (engine_.progress(proxy::AdaptiveWait::now_ns())) {
      }
      return __atomic_load_n(&shared(node).verdict, __ATOMIC_ACQUIRE) != 0;
    })) << "node "
        << node;
    return done_from(__atomic_load_n(&shared(node).verdict, __ATOMIC_ACQUIRE));
  }
  void expect_code(Rank node, ErrorCode code) {
    const Done done = verdict(node);
    EXPECT_EQ(done.number, kNumber) << "node " << node;
    EXPECT_EQ(name_of(error_code_from(done.code)), name_of(code)) << "node " << node;
  }
  std::uint64_t told_its_client(Rank node) {
    return in_mailbox(node, mailbox(node)->paths[kPath].done);
  }

  std::span<std::byte> pinned_;
  proxy::MemoryLink link_{
      {.is_eager = true, .most_sent = kFifoSteps, .is_checked = true, .hesitates = nullptr}};
  proxy::ProxyEngine engine_{*this};
  std::vector<std::shared_ptr<proxy::FifoOrders>> orders_;  // two of each node
  std::vector<proxy::FifoId> ids_;
};

TEST_P(GpuNetworkConformance, KernelsOfEveryGpuReachPinnedMemoryWhoeverPinnedIt) {
  const std::span<std::byte> memory = pin(launcher(1), 4096);
  auto* const words = reinterpret_cast<std::uint64_t*>(memory.data());
  for (Rank rank = 0; rank < kRanks; ++rank) {
    CudaAllReduce there = call(rank);
    there.host_done = words + rank;
    launch(rank, there);
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(eventually([&] {
      return __atomic_load_n(words + rank, __ATOMIC_ACQUIRE) == to_word(Done{.number = 1});
    })) << "rank "
        << rank;
  }
  expect_idle();
}

TEST_P(GpuNetworkConformance, NodesGiveEachOtherTheSumAndTellTheirClients) {
  for (Rank node = 0; node < kNodes; ++node) launch_node(node, part(node));
  for (Rank node = 0; node < kNodes; ++node) {
    ASSERT_NO_FATAL_FAILURE(expect_code(node, ErrorCode::Ok));
    EXPECT_EQ(told_its_client(node), to_word(Done{.number = 1}));
  }
  expect_sums(0);
  EXPECT_EQ(link_.violations(), std::vector<std::string>{});
  expect_idle();
}

TEST_P(GpuNetworkConformance, ANodeWhosePeerDoesNotComeEndsAtItsTimeoutAndTellsNoClient) {
  launch_node(0, part(0, kShort));
  expect_code(0, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(told_its_client(0), 0U);
  expect_idle();
}

TEST_P(GpuNetworkConformance, ANodeEndsWhenItsProxyGivesUpWithTheProxysReason) {
  launch_node(0, part(0));
  engine_.progress(proxy::AdaptiveWait::now_ns());
  EXPECT_EQ(__atomic_load_n(&shared(0).verdict, __ATOMIC_ACQUIRE), 0U);
  engine_.fail_group(0, error(ErrorCode::Aborted, Reason::RemoteDied, "its peer is dead"));
  expect_code(0, ErrorCode::Aborted);
  EXPECT_EQ(told_its_client(0), 0U);
  expect_idle();
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuNetworkConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
