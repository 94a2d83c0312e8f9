#include "client/src/session/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace arcomm::client {
namespace {

// Fixed and lock-free because the child may read it while, in the parent, another thread was
// writing. A descriptor that finds no room merely stays open in the child.
constexpr std::size_t kMostDescriptors = 256;
std::array<std::atomic<int>, kMostDescriptors> descriptors;  // fd + 1; 0 is free
std::atomic<bool> forked{false};

void in_child() {
  forked.store(true, std::memory_order_relaxed);
  for (std::atomic<int>& slot : descriptors) {
    const int held = slot.load(std::memory_order_relaxed);
    if (held > 0) ::close(held - 1);
  }
}

}  // namespace

void watch_for_fork() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, in_child);
  static_cast<void>(installed);  // ENOMEM only; then the child is as unprotected as without us
}

bool is_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

Error forked_error() {
  return error(
      ErrorCode::FailedPrecondition, Reason::Forked,
      "this process was forked from one that uses libarclient; use it in the parent, or exec "
      "a program that attaches by itself");
}

void close_in_forked_child(int fd) {
  for (std::atomic<int>& slot : descriptors) {
    int empty = 0;
    if (slot.compare_exchange_strong(empty, fd + 1, std::memory_order_relaxed)) return;
  }
}

void keep_in_forked_child(int fd) {
  for (std::atomic<int>& slot : descriptors) {
    int held = fd + 1;
    if (slot.compare_exchange_strong(held, 0, std::memory_order_relaxed)) return;
  }
}

}  // namespace arcomm::client
