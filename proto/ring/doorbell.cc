#include "proto/ring/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/futex.h"

namespace arcomm::ring {
namespace {

void arm_flag(std::atomic<std::uint32_t>& flag) {
  flag.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with take_flag's fence
}

// Behind order_published().
bool take_flag(std::atomic<std::uint32_t>& flag) {
  return flag.load(std::memory_order_relaxed) != 0 &&
         flag.exchange(0, std::memory_order_relaxed) != 0;
}

}  // namespace

void order_published() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with arm_flag's fence
}

void FutexDoorbell::arm() {
  arm_flag(*flag_);
}
void FutexDoorbell::disarm() {
  flag_->store(0, std::memory_order_relaxed);
}

void FutexDoorbell::sleep(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  futex_wait(*flag_, 1, timeout, FutexScope::SharedMemory);
}

bool FutexDoorbell::ring() {
  order_published();
  return ring_in_order();
}

bool FutexDoorbell::ring_in_order() {
  if (!take_flag(*flag_)) return false;
  futex_wake_one(*flag_, FutexScope::SharedMemory);
  return true;
}

void FutexDoorbell::ring_all() {
  flag_->store(0, std::memory_order_seq_cst);
  futex_wake_all(*flag_, FutexScope::SharedMemory);
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
  order_published();
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
