// The network kernels and the CPU proxy on one GPU: a kernel of each node, in streams of their own,
// with FIFOs in pinned memory between them and one proxy thread whose wires face each other. Sums
// are compared with the reference bit for bit; what a hand-over takes is printed.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "daemon/proxy/fifo_words.h"
#include "daemon/proxy/proxy_thread.h"
#include "kernels/args.h"
#include "kernels/host/reference.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/network/launch_network.h"
#include "kernels/network/ring_steps.h"
#include "tests/gpu/kernels/flag_echo.h"
#include "tests/support/memory_link.h"

namespace arcomm::proxy {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kTimeoutNs = 2'000'000'000;
constexpr std::uint64_t kPoolShare = 4;

struct Shape {
  bool is_ring = false, is_bidirectional = false;
  SlotMode mode = SlotMode::Normal;
  DType dtype = DType::Float32;
  bool is_wide = false;
  std::uint32_t nodes = 2, lanes = 4;
  std::uint64_t count = 100000, chunk_elements = 4096;
};

// Memory of the GPU; zeroed.
template <typename T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0, count * sizeof(T)), cudaSuccess);
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  void write(const std::vector<T>& from) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  std::vector<T> read() const {
    std::vector<T> to(count_);
    EXPECT_EQ(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return to;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

// One node: its FIFOs in pinned memory, its kernel's words on the GPU, a stream.
class Node {
 public:
  Node(const Shape& shape, std::uint32_t number)
      : shape_(shape),
        number_(number),
        type_(shape.is_wide ? accumulator_of(shape.dtype) : shape.dtype),
        fifos_(NetworkCall::ports_of(shape.nodes, shape.lanes)),
        ports_(fifos_),
        steps_(fifos_),
        partial_(shape.count * size_of(type_)),
        result_(shape.count * size_of(shape.dtype)),
        words_(1) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    most_bytes_ = static_cast<std::uint32_t>(shape.chunk_elements * size_of(type_));
    const std::uint64_t of_each =
        most_bytes_ * (shape.mode == SlotMode::Offset ? kPoolShare : kFifoSteps);
    slots_bytes_ = fifos_ * of_each;
    // Pointer mode sends partials from where they lie, which the wire of this test must reach.
    pinned_ = pinned(fifos_ * sizeof(DeviceFifo) + slots_bytes_ + sizeof(std::uint64_t) +
                     shape.count * 8);
    auto* base = static_cast<std::byte*>(pinned_.host());
    device_fifos_ = reinterpret_cast<DeviceFifo*>(base);
    slots_ = base + fifos_ * sizeof(DeviceFifo);
    verdict_ = reinterpret_cast<std::uint64_t*>(slots_ + slots_bytes_);
    pinned_partial_ = slots_ + slots_bytes_ + sizeof(std::uint64_t);
    if (shape.mode == SlotMode::Offset) {
      pool_ = std::make_unique<SharedSlots>(std::span(slots_, slots_bytes_), most_bytes_,
                                            static_cast<std::uint32_t>(fifos_));
    }
    std::vector<FifoPort> ports(fifos_);
    for (std::uint64_t i = 0; i < fifos_; ++i) {
      const auto own = pool_ != nullptr ? std::span(slots_, slots_bytes_)
                                        : std::span(slots_ + i * of_each, of_each);
      orders_.push_back(std::make_shared<FifoOrders>());
      const int peer = static_cast<int>(i / 2 % shape.nodes);
      configs_.push_back(
          {.direction = i % 2 == 0 ? FifoDirection::Send : FifoDirection::Receive,
           .fifo = device_fifos_ + i,
           .memory = {.mode = shape.mode,
                      .most_bytes = most_bytes_,
                      .slots = own,
                      .pool = pool_.get(),
                      .regions = {own, std::span(pinned_partial_, shape.count * 8)}},
           .wire = nullptr,
           .lane = static_cast<std::uint32_t>(i / 2 / shape.nodes),
           .peer = peer,
           .peer_name = "node " + std::to_string(peer),
           .group = number,
           .orders = orders_.back()});
      ports[i] = {.fifo = device_fifos_ + i,
                  .memory = reinterpret_cast<unsigned char*>(own.data()),
                  .memory_bytes = own.size(),
                  .most_bytes = most_bytes_,
                  .mode = shape.mode,
                  .peer = peer,
                  .steps = steps_.data() + i};
    }
    ports_.write(ports);
  }
  ~Node() { cudaStreamDestroy(stream_); }

  void add(ProxyEngine& engine, const std::function<Wire*(std::uint32_t)>& wire_to) {
    for (FifoConfig& config : configs_) {
      if (config.peer == static_cast<int>(number_)) continue;
      config.wire = wire_to(static_cast<std::uint32_t>(config.peer));
      const auto added = engine.add(config);
      ASSERT_TRUE(added) << added.error().to_string();
      ids_.push_back(*added);
    }
  }
  bool remove(ProxyEngine& engine) {
    bool all = true;
    for (const FifoId id : ids_) all = engine.remove(id) && all;
    return all;
  }

  // Small whole numbers: their sums are exact in any order, and not in 16 bits.
  std::vector<unsigned char> inputs(std::uint32_t operation) const {
    std::vector<unsigned char> bytes(shape_.count * size_of(type_));
    for (std::uint64_t i = 0; i < shape_.count; ++i) {
      const auto value = static_cast<float>(
          (i * 977 + number_ * 131 + operation * 29) % (shape_.is_wide ? 5000 : 61));
      if (type_ == DType::Float32) {
        std::memcpy(bytes.data() + i * 4, &value, 4);
      } else {  // BFloat16, exact below 256
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        std::memcpy(bytes.data() + i * 2, &bits, 2);
      }
    }
    return bytes;
  }
  Status launch(std::uint32_t operation, std::uint64_t timeout_ns) {
    const std::vector<unsigned char> in = inputs(operation);
    partial_.write(in);
    std::memcpy(pinned_partial_, in.data(), in.size());
    NetworkLaunch launch{.call = {.partial = shape_.mode == SlotMode::Pointer
                                                 ? static_cast<const void*>(pinned_partial_)
                                                 : partial_.data(),
                                  .result = result_.data(),
                                  .count = shape_.count,
                                  .timeout_ns = timeout_ns,
                                  .node = number_,
                                  .nodes = shape_.nodes,
                                  .lanes = shape_.lanes,
                                  .divisor = shape_.nodes,
                                  .chunk_elements = shape_.chunk_elements,
                                  .depth = kPoolShare,
                                  .dtype = shape_.dtype,
                                  .op = ReduceOp::Sum,
                                  .is_wide = shape_.is_wide,
                                  .ports = ports_.data()},
                         .words = words_.data(),
                         .verdict = verdict_,
                         .number = operation};
    for (const FifoConfig& config : configs_) {
      if (config.peer == static_cast<int>(number_)) continue;
      const std::uint64_t steps =
          shape_.is_ring ? ring_steps(launch.call, shape_.is_bidirectional, config.lane,
                                      static_cast<std::uint32_t>(config.peer), config.direction)
                         : exchange_steps(launch.call, config.lane);
      EXPECT_TRUE(config.orders->begin(steps, AdaptiveWait::now_ns() + timeout_ns));
    }
    return shape_.is_ring ? launch_network_ring(launch, shape_.is_bidirectional, stream_)
                          : launch_network_exchange(launch, stream_);
  }
  Done wait(std::uint32_t operation) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    for (;;) {
      const Done done = done_from(load_acquire(*verdict_));
      if (done.number == operation) return done;
      if (std::chrono::steady_clock::now() > until) return Done{};
    }
  }
  std::vector<unsigned char> result() const { return result_.read(); }
  cudaStream_t stream() const { return stream_; }

  void tell(const Error& why) const {
    std::printf("node %u: %s\n", number_, why.to_string().c_str());
  }

 private:
  static PinnedPage pinned(std::uint64_t bytes) {
    auto page = PinnedPage::create(bytes);
    EXPECT_TRUE(page) << page.error().to_string();
    return page ? std::move(*page) : PinnedPage();
  }

  const Shape shape_;
  const std::uint32_t number_;
  const DType type_;
  const std::uint64_t fifos_;
  OnGpu<FifoPort> ports_;
  OnGpu<std::uint64_t> steps_;
  OnGpu<unsigned char> partial_, result_;
  OnGpu<NetworkWords> words_;
  cudaStream_t stream_ = nullptr;
  PinnedPage pinned_;
  DeviceFifo* device_fifos_ = nullptr;
  std::byte* slots_ = nullptr;
  std::uint64_t slots_bytes_ = 0;
  std::uint64_t* verdict_ = nullptr;
  std::byte* pinned_partial_ = nullptr;
  std::uint32_t most_bytes_ = 0;
  std::unique_ptr<SharedSlots> pool_;
  std::vector<std::shared_ptr<FifoOrders>> orders_;
  std::vector<FifoConfig> configs_;
  std::vector<FifoId> ids_;
};

// All nodes, one proxy thread, loopback.
class World final : public ProxyEvents {
 public:
  explicit World(const Shape& shape) : shape_(shape) {
    auto proxy = ProxyThread::start({}, *this);
    EXPECT_TRUE(proxy);
    proxy_ = std::move(*proxy);
    links_.resize(std::size_t{shape.nodes} * shape.nodes);
    for (std::uint32_t a = 0; a < shape.nodes; ++a) {
      nodes_.push_back(std::make_unique<Node>(shape, a));
      for (std::uint32_t b = a + 1; b < shape.nodes; ++b) {
        links_[a * shape.nodes + b] = std::make_unique<MemoryLink>(
            MemoryLink::Options{.is_eager = true, .most_sent = 8, .hesitates = nullptr});
      }
    }
    on_proxy([this](ProxyEngine& engine) {
      for (std::uint32_t a = 0; a < shape_.nodes; ++a) {
        nodes_[a]->add(engine, [&](std::uint32_t b) {
          return &links_[std::min(a, b) * shape_.nodes + std::max(a, b)]->end(a < b ? 0 : 1);
        });
      }
    });
  }
  ~World() override {
    cudaDeviceSynchronize();
    bool gone = false;
    while (!gone) {
      on_proxy([&](ProxyEngine& engine) {
        gone = true;
        for (std::uint32_t a = 0; a < shape_.nodes; ++a) {
          engine.fail_group(a, error(ErrorCode::Cancelled, Reason::None, "the end"));
          gone = nodes_[a]->remove(engine) && gone;
        }
      });
    }
    proxy_.reset();
  }

  Node& node(std::uint32_t number) { return *nodes_[number]; }
  ProxyThread& proxy() { return *proxy_; }
  void group_failed(std::uint64_t group, const Error& why) override {
    if (why.code != ErrorCode::Cancelled) nodes_[group]->tell(why);
  }

  // Runs one operation on all nodes and compares the sums.
  void run(std::uint32_t operation) {
    for (auto& node : nodes_) {
      const Status launched = node->launch(operation, kTimeoutNs);
      ASSERT_TRUE(launched) << launched.error().to_string();
    }
    proxy_->ring();
    for (auto& node : nodes_) {
      const Done done = node->wait(operation);
      ASSERT_EQ(done.number, operation) << "no verdict";
      ASSERT_EQ(done.code, 0) << name_of(error_code_from(done.code)) << ", node "
                              << done.culprit_rank;
    }
    AllReduceArgs args = AllReduceArgs::among(shape_.nodes, shape_.count, shape_.dtype);
    args.stage = shape_.is_wide ? ReduceStage::Final : ReduceStage::Whole;
    args.num_outputs = 1;
    std::vector<std::vector<unsigned char>> inputs;
    for (std::uint32_t n = 0; n < shape_.nodes; ++n) {
      inputs.push_back(nodes_[n]->inputs(operation));
      args.inputs[n] = inputs.back().data();
    }
    std::vector<unsigned char> expected(shape_.count * size_of(shape_.dtype));
    args.outputs[0] = expected.data();
    reference::all_reduce_range(args, 0, shape_.count);
    for (auto& node : nodes_) ASSERT_EQ(node->result(), expected);
  }

 private:
  void on_proxy(const std::function<void(ProxyEngine&)>& task) {
    std::promise<void> done;
    proxy_->run([&](ProxyEngine& engine) {
      task(engine);
      done.set_value();
    });
    done.get_future().wait();
  }

  const Shape shape_;
  std::unique_ptr<ProxyThread> proxy_;
  std::vector<std::unique_ptr<MemoryLink>> links_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST(DeviceFifo, SumsAreTheReferencesInEveryShapeAndSlotMode) {
  for (const bool is_ring : {false, true}) {
    for (const std::uint32_t nodes : {2U, 3U}) {
      for (const SlotMode mode : {SlotMode::Normal, SlotMode::Offset, SlotMode::Pointer}) {
        for (const bool is_wide : {false, true}) {
          for (const std::uint64_t count : {1ULL, 1000ULL, 100003ULL, 1000000ULL}) {
            SCOPED_TRACE(testing::Message() << "ring " << is_ring << ", nodes " << nodes << ", mode "
                                            << static_cast<std::uint32_t>(mode) << ", wide "
                                            << is_wide << ", count " << count);
            World world({.is_ring = is_ring,
                         .is_bidirectional = nodes == 3,
                         .mode = mode,
                         .dtype = is_wide ? DType::BFloat16 : DType::Float32,
                         .is_wide = is_wide,
                         .nodes = nodes,
                         .count = count});
            for (std::uint32_t operation = 1; operation <= 3; ++operation) {
              ASSERT_NO_FATAL_FAILURE(world.run(operation));
            }
          }
        }
      }
    }
  }
}

TEST(DeviceFifo, APeerThatDoesNotComeEndsTheKernelAtItsDeadline) {
  World world({.count = 1000});
  const auto from = std::chrono::steady_clock::now();
  ASSERT_TRUE(world.node(0).launch(1, 50'000'000));
  world.proxy().ring();
  const Done done = world.node(0).wait(1);
  EXPECT_EQ(done.code, static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded));
  EXPECT_EQ(done.culprit_rank, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - from, 150ms);
}

TEST(DeviceFifo, HowLongAHandOverTakes) {
  auto page = PinnedPage::create(sizeof(gpu::EchoWords));
  ASSERT_TRUE(page);
  auto* words = static_cast<gpu::EchoWords*>(page->host());
  constexpr std::uint64_t kTimes = 10000;
  ASSERT_EQ(gpu::ask_for_echoes(words, kTimes, nullptr), cudaSuccess);
  while (load_acquire(words->ns) == 0)
    store_release(words->answered, load_acquire(words->asked));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_NE(words->ns, ~std::uint64_t{0});
  std::printf("a flag to pinned memory and back: %.2f us\n",
              static_cast<double>(words->ns) / kTimes / 1000.0);

  for (const std::uint64_t count : {256ULL, 16384ULL, 262144ULL, 4194304ULL}) {
    World world({.lanes = 8, .count = count, .chunk_elements = 32768});
    std::vector<double> us;
    for (std::uint32_t operation = 1; operation <= 30; ++operation) {
      for (std::uint32_t n = 0; n < 2; ++n) ASSERT_TRUE(world.node(n).launch(operation, kTimeoutNs));
      const auto launched = std::chrono::steady_clock::now();
      world.proxy().ring();
      for (std::uint32_t n = 0; n < 2; ++n) ASSERT_EQ(world.node(n).wait(operation).code, 0);
      us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - launched)
              .count());
    }
    std::sort(us.begin(), us.end());
    std::printf("exchange of %8llu bytes by one proxy thread in memory, from launched to done: %.1f us\n",
                static_cast<unsigned long long>(count * 4), us[us.size() / 2]);
  }
}

}  // namespace
}  // namespace arcomm::proxy
