#include "daemon/telemetry/log/log_writer.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <utility>

namespace arcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kIdle{1000};
constexpr std::chrono::milliseconds kGraceToLeave{200};

}  // namespace

struct LogWriter::Shared {
  Shared(LogQueue& q, std::atomic<std::uint64_t>& d, Notice n, std::function<void()> e)
      : queue(q), dropped(d), notice(std::move(n)), each_second(std::move(e)) {}

  // False once stop() was called and its patience is used up.
  bool may_wait() const {
    const Clock::rep end = stop_at.load(std::memory_order_acquire);
    return end == 0 || Clock::now().time_since_epoch().count() < end;
  }

  LogQueue& queue;
  std::atomic<std::uint64_t>& dropped;
  const Notice notice;
  const std::function<void()> each_second;
  std::atomic<Clock::rep> stop_at{0};  // 0: running
  std::mutex mutex;
  std::unique_ptr<LogOutput> next;  // guarded by mutex; takes over before the next line
  std::condition_variable left;
  bool has_left = false;  // guarded by mutex
};

LogWriter::LogWriter(LogQueue& queue, std::atomic<std::uint64_t>& dropped,
                     std::unique_ptr<LogOutput> output, Notice notice,
                     std::function<void()> each_second)
    : shared_(std::make_shared<Shared>(queue, dropped, std::move(notice), std::move(each_second))) {
  shared_->next = std::move(output);
  // Signals are for the main thread; SIGPIPE from a reader that went away would end the process.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(run, shared_);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  stop(std::chrono::milliseconds{0});
}

void LogWriter::replace(std::unique_ptr<LogOutput> output) {
  const std::lock_guard lock(shared_->mutex);
  shared_->next = std::move(output);
}

void LogWriter::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  const Clock::time_point end = Clock::now() + patience;
  shared_->stop_at.store(end.time_since_epoch().count(), std::memory_order_release);
  shared_->queue.wake();
  std::unique_lock lock(shared_->mutex);
  const bool has_left =
      shared_->left.wait_until(lock, end + kGraceToLeave, [&] { return shared_->has_left; });
  lock.unlock();
  if (has_left) {
    thread_.join();
  } else {
    thread_.detach();  // stuck in write(2); it ends by itself if the kernel ever lets it go
  }
}

void LogWriter::run(std::shared_ptr<Shared> shared) {
  std::unique_ptr<LogOutput> output;
  std::uint64_t reported = shared->dropped.load(std::memory_order_relaxed);
  const auto keep_waiting = [&] { return shared->may_wait(); };
  Clock::time_point next_second = Clock::now() + kIdle;
  for (;;) {
    const bool is_stopping = shared->stop_at.load(std::memory_order_acquire) != 0;
    if (Clock::now() >= next_second) {
      shared->each_second();
      next_second = Clock::now() + kIdle;
    }
    const auto lines = shared->queue.take(is_stopping ? Clock::now() : next_second);
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->next) output = std::move(shared->next);
    }
    for (const std::string& line : lines) {
      const bool is_written = shared->may_wait() && output->write(line, keep_waiting);
      if (!is_written) shared->dropped.fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t dropped = shared->dropped.load(std::memory_order_relaxed);
      if (is_written && dropped != reported) {
        if (output->write(shared->notice(dropped - reported), keep_waiting)) reported = dropped;
      }
      shared->queue.finished(1);
    }
    if (is_stopping && (lines.empty() || !shared->may_wait())) break;
  }
  const std::lock_guard lock(shared->mutex);
  shared->has_left = true;
  shared->left.notify_all();
}

}  // namespace arcomm
