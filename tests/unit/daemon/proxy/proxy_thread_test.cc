// Real threads: proxies that wait as they do in the daemon, a thread per block. Mostly for
// ThreadSanitizer; and what a proxy costs that has nothing to do.
#include "daemon/proxy/proxy_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/unit/daemon/proxy/proxy_world.h"

namespace arcomm::proxy {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kTimeoutNs = 60'000'000'000;
// This machine may have fewer cores than the test has threads.
constexpr WaitPolicy kPolicy{.spin = 5us, .yield = 50us, .first_nap = 20us, .longest_nap = 200us};

std::uint64_t cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Runs the plan's operations; nodes wait for each other only through their links.
class Threads {
 public:
  explicit Threads(const WorldPlan& plan)
      : world_(plan, {.is_eager = true, .most_sent = 4, .hesitates = nullptr}) {
    for (std::uint32_t number = 0; number < plan.nodes; ++number) {
      auto proxy = ProxyThread::start(kPolicy, *world_.nodes[number]);
      EXPECT_TRUE(proxy);
      proxies_.push_back(std::move(*proxy));
      on_proxy(number, [&](ProxyEngine& engine) {
        world_.nodes[number]->connect(
            engine, [&](std::uint32_t peer) { return world_.wire(number, peer); });
      });
    }
  }
  ~Threads() {
    for (std::uint32_t number = 0; number < world_.plan.nodes; ++number) {
      on_proxy(number, [](ProxyEngine& engine) {
        engine.fail_group(1, error(ErrorCode::Cancelled, Reason::None, "the end"));
      });
      bool is_gone = false;
      while (!is_gone) {
        on_proxy(number, [&](ProxyEngine& engine) {
          is_gone = true;
          for (const FifoId fifo : world_.nodes[number]->fifos)
            is_gone = engine.remove(fifo) && is_gone;
        });
      }
    }
    proxies_.clear();
  }

  void on_proxy(std::uint32_t number, const std::function<void(ProxyEngine&)>& task) {
    std::promise<void> done;
    proxies_[number]->run([&](ProxyEngine& engine) {
      task(engine);
      done.set_value();
    });
    done.get_future().wait();
  }

  // One node's kernels, one after the other. Empty: all went well.
  std::string run_node(std::uint32_t number, std::uint64_t timeout_ns = kTimeoutNs) {
    WorldNode& node = *world_.nodes[number];
    const std::function<void()> wake = [&] { proxies_[number]->ring(); };
    for (std::uint32_t i = 0; i < world_.plan.operations; ++i) {
      node.begin(timeout_ns, AdaptiveWait::now_ns() + timeout_ns, clock_, wake);
      proxies_[number]->ring();
      std::vector<std::thread> threads;
      for (HostBlock& block : node.blocks) {
        threads.emplace_back([&block] {
          while (!block.has_ended()) {
            if (!block.resume()) std::this_thread::yield();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const HostBlock& block : node.blocks) {
        if (block.verdict() != ErrorCode::Ok) return std::string(name_of(block.verdict()));
      }
      if (std::string wrong = node.check(); !wrong.empty()) return wrong;
    }
    return {};
  }
  std::vector<std::string> run(std::uint64_t timeout_ns = kTimeoutNs) {
    std::vector<std::string> wrong(world_.plan.nodes);
    std::vector<std::thread> threads;
    for (std::uint32_t number = 0; number < world_.plan.nodes; ++number) {
      threads.emplace_back(
          [this, number, timeout_ns, &wrong] { wrong[number] = run_node(number, timeout_ns); });
    }
    for (std::thread& thread : threads) thread.join();
    return wrong;
  }

  ProxyWorld& world() { return world_; }
  ProxyThread& proxy(std::uint32_t number) { return *proxies_[number]; }

 private:
  ProxyWorld world_;
  std::vector<std::unique_ptr<ProxyThread>> proxies_;
  std::function<std::uint64_t()> clock_ = [] { return AdaptiveWait::now_ns(); };
};

TEST(ProxyThread, SumsAreRightInEveryShapeAndSlotMode) {
  for (const Shape shape : {Shape::Exchange, Shape::Ring, Shape::BothWays}) {
    for (const SlotMode mode : {SlotMode::Normal, SlotMode::Offset, SlotMode::Pointer}) {
      for (const bool is_wide : {false, true}) {
        const WorldPlan plan{.shape = shape,
                             .mode = mode,
                             .dtype = is_wide ? DType::BFloat16 : DType::Float32,
                             .is_wide = is_wide,
                             .nodes = shape == Shape::BothWays ? 3U : 2U,
                             .lanes = 2,
                             .operations = 5,
                             .count = 20011,
                             .chunk_elements = 256,
                             .share = 3};
        Threads threads(plan);
        for (const std::string& wrong : threads.run()) {
          EXPECT_EQ(wrong, "") << "shape " << static_cast<int>(shape) << ", mode "
                               << static_cast<int>(mode) << ", wide " << is_wide;
        }
        for (const auto& node : threads.world().nodes) EXPECT_TRUE(node->failures.empty());
      }
    }
  }
}

TEST(ProxyThread, ALinkThatIsCutEndsTheKernelsOfBothSides) {
  const WorldPlan plan{.operations = 1000000, .count = 5000};
  Threads threads(plan);
  std::vector<std::string> wrong;
  std::thread runs([&] { wrong = threads.run(); });
  std::this_thread::sleep_for(30ms);
  const auto cut_at = std::chrono::steady_clock::now();
  threads.world().link(0, 1).cut();
  runs.join();
  EXPECT_LT(std::chrono::steady_clock::now() - cut_at, 5s);
  EXPECT_EQ(wrong[0], "Unavailable");
  EXPECT_EQ(wrong[1], "Unavailable");
}

TEST(ProxyThread, APeerThatDoesNotComeIsNamedAtTheDeadline) {
  Threads threads({.operations = 1, .count = 5000});
  EXPECT_EQ(threads.run_node(0, 50'000'000), "DeadlineExceeded");
  threads.on_proxy(0, [](ProxyEngine&) {});  // behind the failure, which happens on its thread
  const auto until = std::chrono::steady_clock::now() + 5s;
  std::vector<std::string> failures;
  while (failures.empty() && std::chrono::steady_clock::now() < until)
    threads.on_proxy(0, [&](ProxyEngine&) { failures = threads.world().nodes[0]->failures; });
  ASSERT_FALSE(failures.empty());
  EXPECT_NE(failures[0].find("node 1"), std::string::npos) << failures[0];
}

TEST(ProxyThread, AnIdleProxyUsesLessThanAHundredthOfACore) {
  Threads threads({.nodes = 3, .lanes = 3, .operations = 1, .count = 5000});
  for (const std::string& wrong : threads.run()) ASSERT_EQ(wrong, "");
  std::this_thread::sleep_for(50ms);  // spinning and yielding are over
  const std::uint64_t cpu = cpu_ns();
  const WaitTimes before = threads.proxy(0).times();
  const auto from = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(1500ms);
  const std::uint64_t span =
      LostTime::ns_of(std::chrono::steady_clock::now()) - LostTime::ns_of(from);
  const std::uint64_t used = cpu_ns() - cpu;
  const WaitTimes times = threads.proxy(0).times();
  std::printf("3 idle proxies: %.3f %% of a core each; %llu sleeps in %.1f s\n",
              100.0 * static_cast<double>(used) / static_cast<double>(span) / 3,
              static_cast<unsigned long long>(times.sleeps - before.sleeps),
              static_cast<double>(span) / 1e9);
  EXPECT_LT(used, 3 * span / 100);
  // What it did is counted: it slept.
  const auto sleep = static_cast<std::size_t>(WaitStage::Sleep);
  EXPECT_GT(times.ns[sleep] - before.ns[sleep], span / 2);
}

TEST(ProxyThread, ASleeperIsWokenByWhoeverHasSomething) {
  Threads threads({.operations = 1, .count = 64});
  std::this_thread::sleep_for(50ms);
  const std::uint64_t rings = threads.proxy(0).times().rings;
  const auto from = std::chrono::steady_clock::now();
  for (const std::string& wrong : threads.run()) EXPECT_EQ(wrong, "");
  EXPECT_LT(std::chrono::steady_clock::now() - from, 150ms) << "as long as a sleep lasts";
  EXPECT_GT(threads.proxy(0).times().rings, rings);
}

}  // namespace
}  // namespace arcomm::proxy
