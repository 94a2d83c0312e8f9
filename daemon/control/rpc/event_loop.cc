#include "daemon/control/rpc/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace arcomm {
namespace {

// Low half: descriptor, high half: number of the watch, so that an event collected for a watch that
// another callback of the same turn removed is not given to its successor.
std::uint64_t pack(int fd, std::uint64_t number) {
  return (number << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = pack(wake.get(), 0)}};
  if (!epoll || !wake || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create the control loop: ", std::strerror(errno));
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

EventLoop::~EventLoop() = default;

bool EventLoop::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::Closed) return false;
    posted_.push_back(std::move(task));
    if (posted_.size() > 1) return true;  // whoever made it one has rung
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));  // full counter: the loop is awake anyway
  return true;
}

void EventLoop::clear() {
  while (!timers_.empty()) timers_.extract(timers_.begin());  // a task's end may cancel others
  while (!watches_.empty()) unwatch(watches_.begin()->first);
}

void EventLoop::stop() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::Open) state_ = State::Stopping;
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

Status EventLoop::watch(int fd, std::uint32_t events, Watcher watcher) {
  const std::uint64_t number = next_watch_++ & 0xffffffffu;
  epoll_event event{.events = events, .data = {.u64 = pack(fd, number)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot watch descriptor ", fd,
                 ": ", std::strerror(errno));
  }
  watches_[fd] = Watch{number, std::make_shared<Watcher>(std::move(watcher))};
  return {};
}

void EventLoop::unwatch(int fd) {
  if (watches_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::change(int fd, std::uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_event event{.events = events, .data = {.u64 = pack(fd, found->second.number)}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);  // cannot fail: it is watched
}

EventLoop::TimerKey EventLoop::at(Clock::time_point when, Task task) {
  const TimerKey key{when, next_timer_++};
  timers_.emplace(key, std::move(task));
  return key;
}

int EventLoop::timeout_ms() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.at - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 3'600'000));
}

void EventLoop::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.at <= now) {
    auto node = timers_.extract(timers_.begin());  // out first: the task may cancel or add
    node.mapped()();
  }
}

// Returns whether the loop goes on.
bool EventLoop::run_posted() {
  std::vector<Task> tasks;
  bool stopping = false;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
    stopping = state_ == State::Stopping;
    if (stopping && tasks.empty()) state_ = State::Closed;
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;
  }
  return !stopping || !tasks.empty();
}

void EventLoop::run() {
  std::array<epoll_event, 64> events;
  while (run_posted()) {
    turns_.fetch_add(1, std::memory_order_relaxed);
    bool more = false;
    {
      std::lock_guard lock(mutex_);
      more = !posted_.empty() || state_ != State::Open;
    }
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   more ? 0 : timeout_ms());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const int fd = static_cast<int>(static_cast<std::uint32_t>(event.data.u64));
      if (fd == wake_.get()) {
        std::uint64_t ignored = 0;
        (void)!::read(wake_.get(), &ignored, sizeof(ignored));
        continue;
      }
      const auto found = watches_.find(fd);
      if (found == watches_.end() || found->second.number != event.data.u64 >> 32) continue;
      const std::shared_ptr<Watcher> watcher = found->second.watcher;  // it may unwatch itself
      (*watcher)(event.events);
    }
    run_timers();
  }
}

}  // namespace arcomm
