#include "transport/device/host/host_event.h"

#include <algorithm>

#include "proto/futex.h"

namespace arcomm {

void HostEvent::reach(std::uint64_t record) {
  // Forward only: two streams may come to two records of this event in either order.
  std::uint64_t before = reached_.load(std::memory_order_relaxed);
  // Before the look at waiters_: pairs with wait().
  while (before < record &&
         !reached_.compare_exchange_weak(before, record, std::memory_order_seq_cst)) {
  }
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  turn_.fetch_add(1, std::memory_order_release);
  futex_wake_all(turn_, FutexScope::Process);
}

bool HostEvent::wait(std::uint64_t record, std::chrono::nanoseconds timeout) const {
  if (has_reached(record)) return true;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool reached = false;
  for (;;) {
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    reached = reached_.load(std::memory_order_seq_cst) >= record;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (reached || left <= std::chrono::nanoseconds::zero()) break;
    futex_wait(turn_, turn, left, FutexScope::Process);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return reached;
}

Status HostEvent::synchronize(std::chrono::nanoseconds timeout) const {
  const std::uint64_t record = recorded();
  if (wait(record, timeout)) return {};
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "an event's record ", record,
               " was not reached within ",
               std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), " ms");
}

}  // namespace arcomm
