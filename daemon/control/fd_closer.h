// Closes descriptors that a stranger has sent, or sockets that may still hold such: the last close
// of a lingering socket or of a file in user space may block for as long as the stranger likes, and
// must not do so on the control loop. Descriptors are closed in turn on one thread; when it is
// stuck they wait, and full() asks the caller to take in no more.
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
  bool full() const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace arcomm
