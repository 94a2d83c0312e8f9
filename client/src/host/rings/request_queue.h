// The requests that have not left yet: of each member its operations, in the order of the calls. A
// member has at most its share of the session's requests in flight, so that one thread may drive
// all ranks of a communicator: the first rank cannot use up the room that its peers need. Thread:
// under the mutex of the session's Submission.
#pragma once

#include <cstdint>
#include <vector>

#include "client/src/host/member.h"
#include "client/src/host/operation.h"
#include "client/src/host/rings/operation_ends.h"
#include "client/src/host/rings/session_rings.h"

namespace arcomm::client {

class RequestQueue {
 public:
  // Both outlive it.
  RequestQueue(SessionRings& rings, OperationEnds& ends) : rings_(rings), ends_(ends) {}

  void add(Member& member) { members_.push_back(&member); }
  void remove(Member& member) { std::erase(members_, &member); }
  const std::vector<Member*>& members() const { return members_; }

  // Lets the member's requests leave as far as they may, and fails them all once the member has
  // failed. False: the request ring is corrupt, and the session with it.
  [[nodiscard]] bool pump(Member& member);
  // The same with another operation behind the others.
  [[nodiscard]] bool push(Operation& operation) {
    operation.member->queue.push_back(&operation);
    return pump(*operation.member);
  }

 private:
  std::uint32_t share() const;
  bool may_leave(const Member& member, const Operation& operation) const;
  ring::Push send_next(Operation& operation, Member& member);

  SessionRings& rings_;
  OperationEnds& ends_;
  std::vector<Member*> members_;
};

}  // namespace arcomm::client
