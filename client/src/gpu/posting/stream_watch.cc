#include "client/src/gpu/posting/stream_watch.h"

#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "client/src/session/session.h"

namespace arcomm::client {
namespace {

thread_local bool is_watch = false;

// How late a stream hears of the end of its communicator, about.
constexpr std::chrono::milliseconds kLookEvery{2};

class StreamWatch {
 public:
  static StreamWatch& instance() {
    static auto* watch = new StreamWatch;  // never destroyed: its thread may outlive main
    return *watch;
  }

  Status add(const std::shared_ptr<MemoryStarts>& starts) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(starts_, starts) == starts_.end()) starts_.push_back(starts);
    if (!is_running_) ARC_RETURN_IF_ERROR(begin());
    if (is_asleep_) something_.notify_one();
    return {};
  }

  void remove(const std::shared_ptr<MemoryStarts>& starts) {
    const std::lock_guard looking(looking_);
    const std::lock_guard lock(mutex_);
    std::erase(starts_, starts);
  }

 private:
  // The process's signals are not for this thread.
  Status begin() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Status begun;
    try {
      std::thread([this] { run(); }).detach();
      is_running_ = true;
    } catch (const std::system_error& why) {
      begun = error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                    "no thread to look after streams that wait by memory operations (", why.what(),
                    "): raise the limit of threads, or unset ARCOMM_POST");
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return begun;
  }

  [[noreturn]] void run() {
    is_watch = true;
    for (;;) {
      wait_for_some();
      look();
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  void wait_for_some() {
    std::unique_lock lock(mutex_);
    is_asleep_ = true;
    something_.wait(lock, [this] { return !starts_.empty(); });
    is_asleep_ = false;
  }

  void look() {
    // A daemon that is gone writes nothing: its sessions hear of it here.
    for (const std::shared_ptr<Session>& session : Session::all()) session->check();
    const std::lock_guard looking(looking_);
    std::vector<std::shared_ptr<MemoryStarts>> all;
    {
      const std::lock_guard lock(mutex_);
      all = starts_;
    }
    for (const std::shared_ptr<MemoryStarts>& starts : all) look_at(starts);
  }

  void look_at(const std::shared_ptr<MemoryStarts>& starts) {
    if (starts->look_after(MemoryStarts::Clock::now())) return;
    // A start may have come since. Whoever adds one has said so before, and asks for this lock.
    const std::lock_guard lock(mutex_);
    if (!starts->look_after(MemoryStarts::Clock::now())) std::erase(starts_, starts);
  }

  std::mutex looking_;  // held while the thread uses what it looks after
  std::mutex mutex_;    // of what follows
  std::condition_variable something_;
  std::vector<std::shared_ptr<MemoryStarts>> starts_;
  bool is_running_ = false, is_asleep_ = false;
};

}  // namespace

Status watch_streams(const std::shared_ptr<MemoryStarts>& starts) {
  return StreamWatch::instance().add(starts);
}

bool is_stream_watch() {
  return is_watch;
}

void leave_streams(const std::shared_ptr<MemoryStarts>& starts) {
  StreamWatch::instance().remove(starts);
}

}  // namespace arcomm::client
