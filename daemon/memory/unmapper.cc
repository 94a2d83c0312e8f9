#include "daemon/memory/unmapper.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace arcomm {

Unmapper::~Unmapper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Unmapper::give(Held held) {
  if (!start()) return;  // let go here
  {
    const std::lock_guard lock(mutex_);
    if (queued_.size() >= kMaxQueued) return;  // `held` goes after the lock
    queued_.push_back(std::move(held));
  }
  changed_.notify_one();
}

std::uint64_t Unmapper::released() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

bool Unmapper::start() {
  if (thread_.joinable()) return true;
  // It takes no signals: they are the main thread's business.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // No thread to be had: the owner unmaps.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_.joinable();
}

void Unmapper::run() {
  ::pthread_setname_np(::pthread_self(), "arc-unmap");
  std::vector<Held> taken;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queued_.empty(); });
    if (queued_.empty()) return;
    taken.swap(queued_);
    lock.unlock();
    const std::uint64_t count = taken.size();
    taken.clear();
    lock.lock();
    released_ += count;
  }
}

}  // namespace arcomm
