// The control plane's one thread of state: an epoll loop with a message queue and deadlines.
// Whatever the control plane knows (sessions, quotas, communicators that form) is touched on it and
// on nothing else, so none of it locks.
//
// Thread: run() makes the calling thread the owner. post() and stop() may be called from any
// thread; everything else on the owner, or before run(). Callbacks must not block. Times are
// steady_clock's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  // events: epoll's bits. The watch may remove itself or any other while it runs.
  using Watcher = std::function<void(std::uint32_t events)>;
  struct TimerKey {
    Clock::time_point at;
    std::uint64_t number = 0;
    friend auto operator<=>(const TimerKey&, const TimerKey&) = default;
  };

  // For what counts in nanoseconds.
  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();

  void run();
  void stop();  // run() returns after the tasks posted so far
  // Destroys timers and watches with what they hold. After run() has returned.
  void clear();
  // False once the loop has stopped: the task is dropped and destroyed on the caller.
  bool post(Task task);
  // How often it has come round. One that is idle moves when something is posted to it. Any thread.
  std::uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }

  // The descriptor stays the caller's and must be unwatched before it is closed.
  Status watch(int fd, std::uint32_t events, Watcher watcher);
  void unwatch(int fd);
  // Of a watched descriptor: other events.
  void change(int fd, std::uint32_t events);

  TimerKey at(Clock::time_point when, Task task);
  TimerKey after(std::chrono::nanoseconds delay, Task task) {
    return at(Clock::now() + delay, std::move(task));
  }
  void cancel(const TimerKey& key) { timers_.erase(key); }

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

  int timeout_ms() const;
  void run_timers();
  bool run_posted();

  UniqueFd epoll_, wake_;
  std::map<TimerKey, Task> timers_;
  std::uint64_t next_timer_ = 1;
  struct Watch {
    std::uint64_t number = 0;  // tells a watch from a later one on the same descriptor number
    std::shared_ptr<Watcher> watcher;
  };
  std::unordered_map<int, Watch> watches_;
  std::uint64_t next_watch_ = 1;
  std::atomic<std::uint64_t> turns_{0};

  std::mutex mutex_;  // guards the two below
  std::vector<Task> posted_;
  enum class State : std::uint8_t { Open, Stopping, Closed } state_ = State::Open;
};

}  // namespace arcomm
