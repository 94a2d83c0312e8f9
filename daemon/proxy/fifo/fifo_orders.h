// How the thread that launches kernels tells the proxy what is to come on a FIFO: so many steps
// more, until then. A ring without locks. Nothing passes between wire and kernel that was not
// ordered: a kernel may be launched before, and stages and waits. What is open here keeps the proxy
// awake and ends, if it does not get done, at its deadline. Threads: begin() on one, everything
// else on the proxy's. Shared by both; deadlines are in the clock of ProxyEngine::progress().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace arcomm::proxy {

class FifoOrders {
 public:
  static constexpr std::uint64_t kMost = 16;  // operations that are open at once
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // An operation of so many steps. False: kMost are open.
  bool begin(std::uint64_t steps, std::uint64_t deadline_ns) {
    const std::uint64_t next = begun_.load(std::memory_order_relaxed);
    // Pairs with ended()'s release: the place is free.
    if (next - ended_.load(std::memory_order_acquire) >= kMost) return false;
    if (steps == 0) return true;
    begun_until_ += steps;
    orders_[next % kMost] = {.until = begun_until_, .deadline_ns = deadline_ns};
    begun_.store(next + 1, std::memory_order_release);  // pairs with look()'s acquire
    return true;
  }

  // On begin()'s thread: everything that has begun has ended.
  bool is_idle() const {
    return ended_.load(std::memory_order_acquire) == begun_.load(std::memory_order_relaxed);
  }

  // Something has begun that until() and settle() have not seen. On the proxy's thread.
  bool has_new() const { return begun_.load(std::memory_order_relaxed) != known_; }
  // Steps that all operations take which have begun; grows.
  std::uint64_t until() {
    look();
    return until_;
  }
  // Steps are done, in all. True while an operation is open.
  bool settle(std::uint64_t done) {
    look();
    std::uint64_t first = ended_.load(std::memory_order_relaxed);
    const std::uint64_t before = first;
    while (first != known_ && orders_[first % kMost].until <= done) ++first;
    if (first != before) {
      find_deadline(first);
      ended_.store(first, std::memory_order_release);
    }
    return first != known_;
  }
  // The first of all that are open: one behind another is not to outlast its own. kNever: none is.
  std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  struct Order {
    std::uint64_t until = 0;
    std::uint64_t deadline_ns = kNever;
  };

  void look() {
    const std::uint64_t begun = begun_.load(std::memory_order_acquire);
    if (begun == known_) return;
    known_ = begun;
    until_ = orders_[(begun - 1) % kMost].until;
    find_deadline(ended_.load(std::memory_order_relaxed));
  }
  void find_deadline(std::uint64_t first) {
    deadline_ns_ = kNever;
    for (; first != known_; ++first)
      deadline_ns_ = std::min(deadline_ns_, orders_[first % kMost].deadline_ns);
  }

  std::array<Order, kMost> orders_{};
  alignas(64) std::atomic<std::uint64_t> begun_{0};
  std::uint64_t begun_until_ = 0;
  alignas(64) std::atomic<std::uint64_t> ended_{0};
  std::uint64_t known_ = 0, until_ = 0;
  std::uint64_t deadline_ns_ = kNever;
};

}  // namespace arcomm::proxy
