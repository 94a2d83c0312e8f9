// What a fake GPU runs between nodes: the host twins of the network kernels, on a thread for each
// launch, those of a queue one after the other. Thread: the worker's; the launches' own threads
// touch what their call names.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/proxy/host/host_producer.h"
#include "kernels/network/launch_network.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_words.h"

namespace arcomm::test {

class FakeNetwork {
 public:
  ~FakeNetwork() {
    for (std::thread& thread : threads_) thread.join();
  }

  // `running`: how many have not ended. `held`: none of them begins.
  void launch(std::uint32_t queue, const NetworkLaunch& launch, std::atomic<int>& running,
              const std::atomic<bool>& held) {
    ++running;
    const std::shared_ptr<std::atomic<bool>> before = last_[queue];
    const auto ended = last_[queue] = std::make_shared<std::atomic<bool>>(false);
    threads_.emplace_back([=, &running, &held] {
      while (held || (before != nullptr && !*before)) std::this_thread::yield();
      run(launch, running);
      *ended = true;
    });
  }

 private:
  static void run(const NetworkLaunch& launch, std::atomic<int>& running) {
    const std::function<std::uint64_t()> clock = now_ns;
    const proxy::HostCall host{.call = launch.call, .clock = &clock};
    std::vector<proxy::HostBlock> blocks;
    for (std::uint32_t lane = 0; lane < launch.call.lanes; ++lane) {
      blocks.push_back(proxy::stage_for_exchange(host, lane));
      blocks.push_back(proxy::combine_exchange(host, lane));
    }
    const auto has_ended = [](const proxy::HostBlock& block) { return block.has_ended(); };
    while (!std::ranges::all_of(blocks, has_ended)) {
      bool moved = false;
      for (proxy::HostBlock& block : blocks) moved |= block.resume();
      if (!moved) std::this_thread::yield();
    }
    Done done{.number = launch.number};
    for (const proxy::HostBlock& block : blocks) {
      if (done.code == 0) done.code = static_cast<std::uint8_t>(block.verdict());
    }
    for (const NetworkLaunch::Waiter& waiter : launch.waiters) {
      if (done.code == 0 && waiter.done != nullptr)
        store_word(*waiter.done, to_word(Done{.number = waiter.number}));
    }
    --running;  // who reads the verdict may let go of all
    store_word(*launch.verdict, to_word(done));
  }

  std::vector<std::thread> threads_;
  std::map<std::uint32_t, std::shared_ptr<std::atomic<bool>>>
      last_;  // of each queue: has it ended?
};

}  // namespace arcomm::test
