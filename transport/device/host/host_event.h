// An event of the host device: two counters. A record hands out the next number; a stream that
// comes to it publishes it. Threads: see event.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/device/event.h"

namespace arcomm {

class HostEvent final : public EventRef::Backing {
 public:
  bool query() const override { return has_reached(recorded()); }
  Status synchronize(std::chrono::nanoseconds timeout) const override;

  // The recording stream's enqueuing thread: the number of a new record.
  std::uint64_t begin_record() { return recorded_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Takes begin_record() back when the stream had no room for it.
  void cancel_record() { recorded_.fetch_sub(1, std::memory_order_relaxed); }
  std::uint64_t recorded() const { return recorded_.load(std::memory_order_relaxed); }
  // The stream's thread, when it comes to the record.
  void reach(std::uint64_t record);
  bool has_reached(std::uint64_t record) const {
    return reached_.load(std::memory_order_acquire) >= record;  // pairs with reach()
  }
  // False when `record` was not reached within `timeout`.
  bool wait(std::uint64_t record, std::chrono::nanoseconds timeout) const;

 private:
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<std::uint64_t> reached_{0};
  mutable std::atomic<std::uint32_t> turn_{0};  // futex: grows with every reach()
  mutable std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace arcomm
