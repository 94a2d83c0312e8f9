// The communicators whose oldest operation may run, first come first served, linked through
// Communicator::next_ready: so that it needs no memory when many are ready at once. Thread: the
// worker's.
#pragma once

#include <utility>

#include "daemon/comm/communicator.h"

namespace arcomm {

class ReadyQueue {
 public:
  // Nothing where it is there already.
  void push(Communicator& communicator) {
    if (std::exchange(communicator.queued, true)) return;
    communicator.next_ready = nullptr;
    (first_ == nullptr ? first_ : last_->next_ready) = &communicator;
    last_ = &communicator;
  }
  // Null: nobody is.
  Communicator* pop() {
    Communicator* const communicator = first_;
    if (communicator == nullptr) return nullptr;
    first_ = communicator->next_ready;
    communicator->queued = false;
    return communicator;
  }
  void clear() { first_ = last_ = nullptr; }

 private:
  Communicator* first_ = nullptr;
  Communicator* last_ = nullptr;
};

}  // namespace arcomm
