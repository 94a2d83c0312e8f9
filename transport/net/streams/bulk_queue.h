// Frames that wait for any of a pair's bulk streams to be free. Any thread pushes and pops, with no
// lock: a bounded ring in which each place says whose turn it is (Dmitry Vyukov's bounded queue;
// Boost.Lockfree's has a race that ThreadSanitizer reports).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/net/connection.h"

namespace arcomm::net {

// How many of an operation's payloads are still on loan to the streams. Whoever posts counts up
// first; a stream counts down (release) when a payload was sent or never will be: at 0 (acquire)
// all of them are the poster's again.
using OnLoan = std::atomic<std::uint32_t>;

struct BulkFrame {
  Frame frame;
  OnLoan* on_loan = nullptr;
};

class BulkQueue {
 public:
  static constexpr std::size_t kMost = 1024;

  BulkQueue() : places_(std::make_unique<std::array<Place, kMost>>()) {
    for (std::size_t i = 0; i < kMost; ++i) (*places_)[i].turn.store(i, std::memory_order_relaxed);
  }

  // False: full, or empty.
  bool push(const BulkFrame& frame) {
    Place* const place = claim(pushed_, 0);
    if (place == nullptr) return false;
    place->frame = frame;
    place->turn.fetch_add(1, std::memory_order_release);  // a popper's
    return true;
  }
  bool pop(BulkFrame& frame) {
    Place* const place = claim(popped_, 1);
    if (place == nullptr) return false;
    frame = place->frame;
    place->turn.fetch_add(kMost - 1, std::memory_order_release);  // the next lap's pusher's
    return true;
  }
  // May be over when it returns.
  bool empty() const {
    return popped_.load(std::memory_order_relaxed) >= pushed_.load(std::memory_order_relaxed);
  }

 private:
  struct Place {
    // n: the n-th push may write it; n + 1: the n-th pop may read it.
    std::atomic<std::uint64_t> turn{0};
    BulkFrame frame;
  };

  // The place of the next `count`, whose turn is to be `count + later`; nullptr: it is not yet.
  Place* claim(std::atomic<std::uint64_t>& count, std::uint64_t later) {
    std::uint64_t mine = count.load(std::memory_order_relaxed);
    for (;;) {
      Place& place = (*places_)[mine % kMost];
      const std::uint64_t turn = place.turn.load(std::memory_order_acquire);
      if (turn < mine + later) return nullptr;
      if (turn > mine + later) {
        mine = count.load(std::memory_order_relaxed);  // another thread was faster
      } else if (count.compare_exchange_weak(mine, mine + 1, std::memory_order_relaxed)) {
        return &place;
      }
    }
  }

  std::unique_ptr<std::array<Place, kMost>> places_;
  alignas(64) std::atomic<std::uint64_t> pushed_{0};
  alignas(64) std::atomic<std::uint64_t> popped_{0};
};

}  // namespace arcomm::net
