#include "daemon/control/fd_closer.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace arcomm {
namespace {

constexpr std::chrono::seconds kFarewell{1};

}  // namespace

struct FdCloser::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<UniqueFd> waiting;
  bool stopping = false, ended = false;

  void close(UniqueFd fd) {
    if (!fd) return;
    {
      std::lock_guard lock(mutex);
      if (!ended) waiting.push_back(std::move(fd));
    }
    changed.notify_all();
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "arc-closer");
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (waiting.empty()) break;
      UniqueFd fd = std::move(waiting.front());
      lock.unlock();
      fd.reset();
      lock.lock();
      waiting.pop_front();  // counted until it is closed
    }
    ended = true;
    changed.notify_all();
  }
};

// Not joined: a close that never returns must not keep the daemon from ending.
FdCloser::FdCloser() : queue_(std::make_shared<Queue>()) {
  std::thread([queue = queue_] { queue->run(); }).detach();
}

FdCloser::~FdCloser() {
  std::unique_lock lock(queue_->mutex);
  queue_->stopping = true;
  queue_->changed.notify_all();
  queue_->changed.wait_for(lock, kFarewell, [this] { return queue_->ended; });
}

void FdCloser::close(UniqueFd fd) {
  queue_->close(std::move(fd));
}

std::shared_ptr<UniqueFd> FdCloser::hold(UniqueFd fd) {
  return {new UniqueFd(std::move(fd)), [queue = queue_](UniqueFd* held) {
            queue->close(std::move(*held));
            delete held;
          }};
}

bool FdCloser::full() const {
  std::lock_guard lock(queue_->mutex);
  return queue_->waiting.size() >= kMostWaiting;
}

}  // namespace arcomm
