#include "daemon/telemetry/log/log_queue.h"

#include <algorithm>

namespace arcomm {
namespace {

constexpr std::size_t kMostTaken = 64;

}  // namespace

void LogQueue::set_capacity(std::size_t lines) {
  const std::lock_guard lock(mutex_);
  capacity_ = std::max<std::size_t>(lines, 4);
}

bool LogQueue::push(std::string line, bool is_audit) {
  {
    const std::lock_guard lock(mutex_);
    const std::size_t room = is_audit ? capacity_ : capacity_ - capacity_ / 4;
    if (lines_.size() >= room) return false;
    lines_.push_back(std::move(line));
    ++pushed_;
  }
  arrived_.notify_one();
  return true;
}

std::vector<std::string> LogQueue::take(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  arrived_.wait_until(lock, deadline, [&] { return !lines_.empty() || is_woken_; });
  is_woken_ = false;
  const std::size_t count = std::min(lines_.size(), kMostTaken);
  const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<std::string> taken(std::make_move_iterator(lines_.begin()),
                                 std::make_move_iterator(end));
  lines_.erase(lines_.begin(), end);
  return taken;
}

void LogQueue::finished(std::size_t lines) {
  {
    const std::lock_guard lock(mutex_);
    finished_ += lines;
  }
  progressed_.notify_all();
}

void LogQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  arrived_.notify_all();
}

bool LogQueue::wait_until_finished(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t goal = pushed_;
  return progressed_.wait_until(lock, deadline, [&] { return finished_ >= goal; });
}

std::size_t LogQueue::discard() {
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    count = lines_.size();
    lines_.clear();
    finished_ += count;
  }
  progressed_.notify_all();
  return count;
}

}  // namespace arcomm
