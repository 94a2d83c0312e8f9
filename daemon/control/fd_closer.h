// Closes descriptors whose last close may take long, so that it happens on no thread that serves
// others: what a stranger has sent (a lingering socket, a file in user space, which block for as
// long as the stranger likes), sockets that may still hold such, memory whose gigabytes go with it.
// Descriptors are closed in turn on one thread; when it is stuck they wait, and full() asks the
// caller to take in no more. Memory has a closer of its own, which no stranger can hold up.
//
// Thread: any. The destructor waits a second for what is queued, then leaves the thread to itself.
#pragma once

#include <cstddef>
#include <memory>

#include "proto/unique_fd.h"

namespace arcomm {

class FdCloser {
 public:
  static constexpr std::size_t kMostWaiting = 256;

  FdCloser();
  ~FdCloser();
  FdCloser(const FdCloser&) = delete;
  FdCloser& operator=(const FdCloser&) = delete;

  void close(UniqueFd fd);
  // To be shared by those who are passing it on; closed here if it is still there when the last of
  // them lets go. They may outlive the closer.
  std::shared_ptr<UniqueFd> hold(UniqueFd fd);
  bool full() const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace arcomm
