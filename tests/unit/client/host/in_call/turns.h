// Ranks as threads of which one runs at a time: at each of its steps the seed decides who goes on.
// So a test sees the same order of accesses again, and many orders that cores would show seldom.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace arcomm::client {

class Turns {
 public:
  Turns(std::uint32_t ranks, std::uint64_t seed) : is_over_(ranks, false), random_(seed) {}

  // Runs body(rank) for each; returns when all have ended.
  void run(const std::function<void(std::uint32_t)>& body) {
    next_ = draw();
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < is_over_.size(); ++rank) {
      threads.emplace_back([this, &body, rank] {
        await(rank);
        body(rank);
        const std::lock_guard lock(mutex_);
        is_over_[rank] = true;
        next_ = draw();
        changed_.notify_all();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Somebody else may go on first.
  void step(std::uint32_t rank) {
    {
      const std::lock_guard lock(mutex_);
      next_ = draw();
      if (next_ == rank) return;
      changed_.notify_all();
    }
    await(rank);
  }

 private:
  std::uint32_t draw() {
    std::vector<std::uint32_t> running;
    for (std::uint32_t rank = 0; rank < is_over_.size(); ++rank) {
      if (!is_over_[rank]) running.push_back(rank);
    }
    return running.empty() ? 0 : running[random_() % running.size()];
  }
  void await(std::uint32_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == rank; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> is_over_;
  std::mt19937_64 random_;
  std::uint32_t next_ = 0;
};

}  // namespace arcomm::client
