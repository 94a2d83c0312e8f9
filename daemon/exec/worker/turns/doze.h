// How a worker sleeps: on the doorbells of its sessions, the descriptors of its links and its own
// mailbox, for a time at most. Thread: the worker's; watch() also before it runs.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <utility>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class Doze {
 public:
  // Sleeps that are shorter are measured in nanoseconds, where the kernel can.
  static constexpr std::uint64_t kNapNs = 1'000'000;

  static Result<Doze> create() {
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (epoll) return Doze(std::move(epoll));
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create an epoll: ", std::strerror(errno));
  }

  Status watch(int fd, std::uint32_t events = EPOLLIN) {
    epoll_event event{};
    // Edge-triggered, and never read: the descriptor's other copy is a client's, who could make a
    // read block. A link's is read and written until it says no more.
    event.events = events | EPOLLET;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot watch a doorbell: ", std::strerror(errno));
  }
  // Closing is not enough: the client's copy keeps the descriptor, and our interest in it, alive.
  void unwatch(int fd) {
    if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }

  // Until something rings, or so long.
  void sleep(std::uint64_t sleep_ns) {
    epoll_event events[16];
    if (sleep_ns < kNapNs) {
      const timespec nap{0, static_cast<long>(sleep_ns)};
      if (::epoll_pwait2(epoll_.get(), events, 16, &nap, nullptr) >= 0 || errno != ENOSYS) return;
    }
    ::epoll_wait(epoll_.get(), events, 16, static_cast<int>((sleep_ns + 999'999) / 1'000'000));
  }

 private:
  explicit Doze(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  UniqueFd epoll_;
};

}  // namespace arcomm
