#include "daemon/control/descriptors/fd_closer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "daemon/memory/fair_share.h"

namespace arcomm {
namespace {

constexpr std::chrono::seconds kFarewell{1};
constexpr std::chrono::seconds kIdle{10};
constexpr uid_t kOurs = static_cast<uid_t>(-1);  // nobody's uid

// Of a unix socket: what the kernel counts of descriptors in its messages. Linux before 5.9 does
// not say, and then there may be some.
bool may_hold_descriptors(int socket_fd) {
  const std::string path = "/proc/self/fdinfo/" + std::to_string(socket_fd);
  const UniqueFd info(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[1024] = {};
  if (!info || ::read(info.get(), bytes, sizeof(bytes) - 1) <= 0) return true;
  constexpr std::string_view kCount = "scm_fds:";
  const std::size_t found = std::string_view(bytes).find(kCount);
  if (found == std::string_view::npos) return true;
  const char* first = bytes + found + kCount.size();
  char* end = nullptr;
  const unsigned long count = std::strtoul(first, &end, 10);
  return end == first || count != 0;
}

// A doorbell, or a memfd of few pages. Asked of what the kernel remembers, as in fd_wire.cc.
bool is_small(int fd) {
  constexpr std::uint64_t kFewBlocks = (1 << 20) / 512;
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_BLOCKS, &info) != 0)
    return false;
  const unsigned type = info.stx_mode & S_IFMT;
  return type == 0 || (type == S_IFREG && info.stx_blocks <= kFewBlocks);
}

}  // namespace

struct FdCloser::Queues {
  std::mutex mutex;
  std::condition_variable changed, thread_ended;
  // Owners who have something waiting. It is counted until it is closed.
  std::unordered_map<uid_t, std::deque<UniqueFd>> waiting;
  std::deque<uid_t> unserved;  // those of them for whom no thread is at work
  FairShare room{{.node = kMostWaitingOfAll, .per_uid = kMostWaiting}};
  FairShare at_work{{.node = kMostThreads, .per_uid = 1}};
  std::size_t threads = 0, free_threads = 0;
  bool stopping = false;

  void run() {
    ::pthread_setname_np(::pthread_self(), "arc-closer");
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait_for(lock, kIdle, [this] { return stopping || next() != unserved.end(); });
      --free_threads;
      const auto chosen = next();
      if (chosen == unserved.end()) break;
      const uid_t owner = *chosen;
      unserved.erase(chosen);
      at_work.take(owner);
      std::deque<UniqueFd>& queue = waiting.at(owner);
      UniqueFd fd = std::move(queue.front());
      lock.unlock();
      fd.reset();
      lock.lock();
      at_work.give_back(owner);
      if (owner != kOurs) room.give_back(owner);
      queue.pop_front();
      if (queue.empty()) {
        waiting.erase(owner);
      } else {
        unserved.push_back(owner);
      }
      ++free_threads;
    }
    --threads;
    thread_ended.notify_all();
  }

  // The first whose tenant may have one thread more.
  std::deque<uid_t>::iterator next() {
    return std::find_if(unserved.begin(), unserved.end(), [this](uid_t owner) {
      return at_work.ask(owner) == FairShare::Answer::Yes;
    });
  }

  static void close(const std::shared_ptr<Queues>& self, uid_t owner, UniqueFd fd) {
    if (!fd) return;
    {
      std::lock_guard lock(self->mutex);
      if (self->stopping && self->threads == 0) return;  // closed here
      std::deque<UniqueFd>& queue = self->waiting[owner];
      queue.push_back(std::move(fd));
      if (owner != kOurs) self->room.take(owner);
      if (queue.size() == 1) self->unserved.push_back(owner);
      if (!self->stopping && self->free_threads < self->unserved.size()) add_thread(self);
    }
    self->changed.notify_one();
  }

  // Not joined: a close that never returns must not keep the daemon from ending.
  static void add_thread(const std::shared_ptr<Queues>& self) {
    if (self->threads == kMostThreads) return;
    try {
      std::thread([self] { self->run(); }).detach();
    } catch (const std::system_error&) {
      return;  // a thread that there is, or the next close, will see to it
    }
    ++self->threads;
    ++self->free_threads;
  }
};

FdCloser::FdCloser() : queues_(std::make_shared<Queues>()) {}

FdCloser::~FdCloser() {
  std::unique_lock lock(queues_->mutex);
  queues_->stopping = true;
  queues_->changed.notify_all();
  queues_->thread_ended.wait_for(lock, kFarewell, [this] { return queues_->threads == 0; });
  if (queues_->threads != 0) return;
  // What no thread could be made for: left open rather than closed on this one.
  for (auto& [owner, queue] : queues_->waiting) {
    for (UniqueFd& fd : queue) (void)fd.release();
  }
}

void FdCloser::close(uid_t owner, UniqueFd fd) {
  Queues::close(queues_, owner, std::move(fd));
}

void FdCloser::close_socket(uid_t owner, UniqueFd socket) {
  if (!socket) return;
  ::shutdown(socket.get(), SHUT_RD);
  if (may_hold_descriptors(socket.get())) close(owner, std::move(socket));
}

bool FdCloser::full(uid_t owner) const {
  std::lock_guard lock(queues_->mutex);
  return queues_->room.ask(owner) != FairShare::Answer::Yes;
}

void FdCloser::close(UniqueFd fd) {
  close(kOurs, std::move(fd));
}

void FdCloser::close_handed_out(UniqueFd fd) {
  if (fd && !is_small(fd.get())) close(std::move(fd));
}

std::shared_ptr<UniqueFd> FdCloser::hold(UniqueFd fd) {
  return {new UniqueFd(std::move(fd)), [queues = queues_](UniqueFd* held) {
            Queues::close(queues, kOurs, std::move(*held));
            delete held;
          }};
}

}  // namespace arcomm
