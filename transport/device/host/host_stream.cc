#include "transport/device/host/host_stream.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>

#include "proto/futex.h"
#include "transport/device/pause.h"

namespace arcomm {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A sleeper looks again by itself after this: a lost wake-up would be a stall, not a hang.
constexpr nanoseconds kLongestSleep = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<HostStream>> HostStream::create(std::string_view name, std::uint32_t slots,
                                                       nanoseconds spin) {
  std::unique_ptr<HostStream> stream(new HostStream(std::string(name.substr(0, 15)), slots, spin));
  // The stream's thread takes no signals: they are the main thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::string failure;
  try {
    stream->thread_ = std::thread(&HostStream::run, stream.get());
  } catch (const std::system_error& caught) {
    failure = caught.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!failure.empty()) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no thread for stream ", name,
                 ": ", failure, "; raise TasksMax or RLIMIT_NPROC, or use fewer streams");
  }
  return stream;
}

HostStream::~HostStream() {
  if (!thread_.joinable()) return;
  closing_.store(true,
                 std::memory_order_seq_cst);  // before the look at asleep_: pairs with await_work()
  if (asleep_.exchange(0, std::memory_order_seq_cst) != 0)
    futex_wake_all(asleep_, FutexScope::Process);
  thread_.join();
}

Enqueue HostStream::push(const Slot& slot) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_seen_ == slots_.size()) {
    head_seen_ = head_.load(std::memory_order_acquire);  // pairs with run()'s release
    if (tail - head_seen_ == slots_.size()) return Enqueue::Full;
  }
  slots_[tail & (slots_.size() - 1)] = slot;
  // Publishes the slot, and comes before the look at asleep_ in the one order that await_work()
  // sees too: either the thread finds the slot in its last look or we find it asleep.
  tail_.store(tail + 1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) != 0 &&
      asleep_.exchange(0, std::memory_order_seq_cst) != 0) {
    futex_wake_all(asleep_, FutexScope::Process);
  }
  return Enqueue::Done;
}

Enqueue HostStream::enqueue(StreamTask task) {
  return push({.task = task});
}

Enqueue HostStream::record(EventRef event) {
  auto* host = static_cast<HostEvent*>(event.backing());
  const Enqueue pushed =
      push({.task = {}, .event = host, .number = host->begin_record(), .reaches = true});
  if (pushed != Enqueue::Done) host->cancel_record();
  return pushed;
}

Enqueue HostStream::wait_for(EventRef event) {
  auto* host = static_cast<HostEvent*>(event.backing());
  return push({.task = {}, .event = host, .number = host->recorded()});
}

void HostStream::run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  for (std::uint64_t head = 0; await_work(head);) {
    const std::uint64_t tail = tail_.load(std::memory_order_acquire);  // pairs with push()
    while (head != tail) {
      execute(slots_[head & (slots_.size() - 1)]);
      ++head;
      head_.store(
          head,
          std::memory_order_seq_cst);  // before the look at waiters_: pairs with synchronize()
      if (waiters_.load(std::memory_order_seq_cst) != 0) {
        turn_.fetch_add(1, std::memory_order_release);
        futex_wake_all(turn_, FutexScope::Process);
      }
    }
  }
}

bool HostStream::await_work(std::uint64_t head) {
  const auto has_work = [&] { return tail_.load(std::memory_order_seq_cst) != head; };
  if (has_work()) return true;
  auto now = steady_clock::now();
  const auto until = now + spin_;
  while (now < until && !lost_time_.sleeps(LostTime::ns_of(now))) {
    const auto before = now;
    for (int i = 0; i < 16; ++i) {
      if (has_work()) return true;
      pause_briefly();
    }
    now = steady_clock::now();
    lost_time_.paused(LostTime::ns_of(before), LostTime::ns_of(now));
  }
  for (;;) {
    asleep_.store(1, std::memory_order_seq_cst);  // before the last look: pairs with push()
    if (has_work()) break;
    if (closing_.load(std::memory_order_seq_cst)) return false;
    futex_wait(asleep_, 1, kLongestSleep, FutexScope::Process);
  }
  asleep_.store(0, std::memory_order_relaxed);
  return true;
}

void HostStream::execute(const Slot& slot) {
  if (slot.event == nullptr) {
    slot.task.run(slot.task.context);
  } else if (slot.reaches) {
    slot.event->reach(slot.number);
  } else {
    while (!slot.event->wait(slot.number, kLongestSleep)) {
    }
  }
}

bool HostStream::reached(std::uint64_t position) const {
  return head_.load(std::memory_order_seq_cst) >= position;
}

bool HostStream::query() const {
  return reached(tail_.load(std::memory_order_acquire));
}

Status HostStream::synchronize(nanoseconds timeout) const {
  const std::uint64_t position = tail_.load(std::memory_order_acquire);
  if (reached(position)) return {};
  const auto deadline = steady_clock::now() + timeout;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool done = false;
  for (;;) {
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    done = reached(position);
    const auto left = deadline - steady_clock::now();
    if (done || left <= nanoseconds::zero()) break;
    futex_wait(turn_, turn, left, FutexScope::Process);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  if (done) return {};
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "stream ", name_, " has ",
               position - head_.load(std::memory_order_relaxed), " tasks left after ",
               std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), " ms");
}

}  // namespace arcomm
