// The copying for operations on memory that the daemon cannot reach: into a staging slot before a
// segment leaves, and out of it once the segment is reduced. It works through the operations in
// turn, on the threads that wait anyway.
//
// Thread: any, always under the mutex of the session's Submission; run() lets go of it while bytes
// move. Meanwhile the operation says `copying`: no other thread touches its slots' memory and it
// cannot end. Ownership: the operations are the Submission's, and forgotten here before they end.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/host/operation.h"

namespace arcomm::client {

class StagedCopying {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Enough = std::function<bool()>;  // whether the copying thread has better things to do
  // Both are called with the lock held.
  struct Notices {
    std::function<void(Operation&)> segment_filled;   // it may leave
    std::function<void(Operation&)> copying_stopped;  // nothing here keeps the operation any more
  };
  explicit StagedCopying(Notices notices) : notices_(std::move(notices)) {}

  // Copies the first segment in, for an operation that is still its caller's: without the lock.
  static void fill_first(Operation& operation);

  // The operation has copying to do.
  void queue(Operation& operation);
  void forget(Operation& operation);
  bool empty() const { return queue_.empty(); }
  // Stops between two segments once the thread has `enough`; what is left is the next thread's.
  void run(Lock& lock, const Enough& enough);

 private:
  void copy_segments(Operation& operation, Lock& lock, const Enough& enough);

  const Notices notices_;
  std::vector<Operation*> queue_;
};

}  // namespace arcomm::client
