#include "proto/ring/doorbell.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

namespace arcomm::ring {
namespace {

void arm_flag(std::atomic<std::uint32_t>& flag) {
  flag.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with take_flag's fence
}

bool take_flag(std::atomic<std::uint32_t>& flag) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with arm_flag's fence
  return flag.load(std::memory_order_relaxed) != 0 &&
         flag.exchange(0, std::memory_order_relaxed) != 0;
}

// Shared, not private: the two sides are different processes.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, 0);
}

}  // namespace

void FutexDoorbell::arm() {
  arm_flag(*flag_);
}
void FutexDoorbell::disarm() {
  flag_->store(0, std::memory_order_relaxed);
}

void FutexDoorbell::sleep(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  const timespec span{static_cast<time_t>(timeout.count() / 1'000'000'000),
                      static_cast<long>(timeout.count() % 1'000'000'000)};
  futex(flag_, FUTEX_WAIT, 1,
        &span);  // EAGAIN when already rung; EINTR and ETIMEDOUT are the caller's to re-check
}

bool FutexDoorbell::ring() {
  if (!take_flag(*flag_)) return false;
  futex(flag_, FUTEX_WAKE, 1, nullptr);
  return true;
}

void FutexDoorbell::ring_all() {
  flag_->store(0, std::memory_order_seq_cst);
  futex(flag_, FUTEX_WAKE, INT_MAX, nullptr);
}

Result<UniqueFd> EventDoorbell::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create an eventfd: ", std::strerror(errno));
  }
  return fd;
}

void EventDoorbell::arm() {
  arm_flag(*flag_);
}
void EventDoorbell::disarm() {
  flag_->store(0, std::memory_order_relaxed);
}

bool EventDoorbell::ring() {
  if (!take_flag(*flag_)) return false;
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full: a wake-up is pending anyway.
  [[maybe_unused]] const ssize_t written = ::write(event_fd_, &one, sizeof(one));
  return true;
}

void EventDoorbell::drain() {
  std::uint64_t counted = 0;
  [[maybe_unused]] const ssize_t taken = ::read(event_fd_, &counted, sizeof(counted));
}

}  // namespace arcomm::ring
