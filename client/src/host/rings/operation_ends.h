// How operations end, well or not: when nothing of one is left anywhere, its memory goes back and
// its outcome is published. One that ends part-way takes its member along. Thread: under the mutex
// of the session's Submission.
#pragma once

#include <cstdint>
#include <utility>

#include "client/src/host/member.h"
#include "client/src/host/memory/staged_copying.h"
#include "client/src/host/memory/staging.h"
#include "client/src/host/operation.h"
#include "client/src/session/due_aborts.h"
#include "proto/status.h"

namespace arcomm::client {

class OperationEnds {
 public:
  // All outlive it.
  OperationEnds(StagingPool& staging, StagedCopying& copying, DueAborts& aborts)
      : staging_(staging), copying_(copying), aborts_(aborts) {}

  // The operation fails with `why`, unless it has failed already. seq: where it is known.
  void fail(Operation& operation, const Error& why, std::uint64_t seq = kNoSeq);
  // Ends the operation if nothing of it is left anywhere.
  void settle(Operation& operation);
  // The member takes nothing more, and its peers shall hear of it.
  void revoke(Member& member, const Error& why);
  // The same for a member whose ranks no longer agree on what comes next.
  void give_up(Member& member);

  // Whether an operation has ended since the last call: somebody may wait for it.
  bool take_any_ended() { return std::exchange(any_ended_, false); }

 private:
  StagingPool& staging_;
  StagedCopying& copying_;
  DueAborts& aborts_;
  bool any_ended_ = false;
};

}  // namespace arcomm::client
