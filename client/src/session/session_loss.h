// The end of a session, and why: every open operation and every later call gets that error.
// Thread: any for lost(); all else under the mutex of the session's Submission.
#pragma once

#include <atomic>
#include <optional>

#include "client/src/host/rings/operation_ends.h"
#include "client/src/host/rings/request_queue.h"
#include "client/src/host/rings/session_rings.h"
#include "proto/status.h"

namespace arcomm::client {

class SessionLoss {
 public:
  // All outlive it.
  SessionLoss(SessionRings& rings, RequestQueue& requests, OperationEnds& ends)
      : rings_(rings), requests_(requests), ends_(ends) {}

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  const std::optional<Error>& why() const { return why_; }
  // Whether the daemon says in the segment's state that it serves the session no longer, and what
  // it says. It has pushed every completion before.
  bool is_told() const {
    const auto state = static_cast<ring::SessionState>(
        rings_.control().session_state.load(std::memory_order_acquire));
    // A daemon that shuts down still answers, and knows which operations its peers have begun.
    return state != ring::SessionState::Open && state != ring::SessionState::ShuttingDown;
  }
  Error told() const;
  // Ends everything. The first reason counts.
  void lose(const Error& why);

 private:
  SessionRings& rings_;
  RequestQueue& requests_;
  OperationEnds& ends_;
  std::optional<Error> why_;
  std::atomic<bool> lost_{false};
};

}  // namespace arcomm::client
