// Closes descriptors whose last close may take long, so that it happens on no thread that serves
// others: what a stranger has sent (a lingering socket, a file in user space, which block for as
// long as the stranger likes), sockets that still hold such, memory whose gigabytes go with it.
//
// Each owner's descriptors are closed in turn, by one thread at a time: a close that is stuck holds
// up what the same owner left and nothing else, and full() asks the caller to take in no more from
// it. One person may have many uids: of threads and of room each tenant has a fair share
// (daemon/memory/fair_share.h). Threads are made when there is something to close and end when
// there has been nothing for a while. Memory has a closer of its own, which no stranger can hold
// up.
//
// Thread: any. The destructor waits a second for what is queued, then leaves the threads to
// themselves.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "proto/unique_fd.h"

namespace arcomm {

class FdCloser {
 public:
  static constexpr std::size_t kMostWaiting = 256;         // of one owner
  static constexpr std::size_t kMostWaitingOfAll = 8'192;  // of all, but for the daemon's own
  // Of all owners. While that many are stuck the others' descriptors wait too; their connections
  // do not, see close_socket().
  static constexpr std::size_t kMostThreads = 16;

  FdCloser();
  ~FdCloser();
  FdCloser(const FdCloser&) = delete;
  FdCloser& operator=(const FdCloser&) = delete;

  void close(uid_t owner, UniqueFd fd);
  // A connected unix socket. Nothing arrives any more. It is closed at once when the kernel says
  // that no descriptor waits in it, since nothing can block then; otherwise in its owner's turn.
  // However many an owner leaves of the latter kind, the kernel lets no user without privileges
  // have more descriptors under way than RLIMIT_NOFILE allows.
  void close_socket(uid_t owner, UniqueFd socket);
  bool full(uid_t owner) const;

  // The daemon's own.
  void close(UniqueFd fd);
  // The same of a descriptor that was handed out, whose last reference may be this one: what is
  // small is closed here and now, which costs less than waking a thread.
  void close_handed_out(UniqueFd fd);
  // To be shared by those who are passing it on; closed here if it is still there when the last of
  // them lets go. They may outlive the closer.
  std::shared_ptr<UniqueFd> hold(UniqueFd fd);

 private:
  struct Queues;
  std::shared_ptr<Queues> queues_;
};

}  // namespace arcomm
