#include "client/src/host/rings/operation_ends.h"

#include "client/src/host/memory/operation_memory.h"
#include "client/src/host/ticket_table.h"

namespace arcomm::client {

void OperationEnds::fail(Operation& operation, const Error& why, std::uint64_t seq) {
  if (!operation.failed()) {
    // One request that failed took its place in the sequence on every rank. One that never left did
    // not, and of several nobody can say how many each rank has submitted: going on could pair one
    // operation with another.
    const bool whole = operation.cut.segments == 1 && operation.next_submit == 1;
    if (!whole) give_up(*operation.member);
    operation.outcome.error = why;
    if (seq != kNoSeq) operation.outcome.seq = seq;
  }
  settle(operation);
}

void OperationEnds::settle(Operation& operation) {
  if (operation.copying || operation.outstanding > 0) return;
  if (!operation.failed() && operation.finished < operation.cut.segments) return;
  if (operation.done.load(std::memory_order_relaxed)) return;
  Member& member = *operation.member;
  std::erase(member.queue, &operation);
  copying_.forget(operation);
  give_back_memory(operation, staging_);
  member.active.fetch_sub(1, std::memory_order_release);
  any_ended_ = true;
  if (operation.abandoned) {
    tickets().recycle(operation);
  } else {
    operation.done.store(true,
                         std::memory_order_release);  // pairs with the waiting thread's acquire
  }
}

void OperationEnds::revoke(Member& member, const Error& why) {
  if (member.failure) return;
  member.fail(why);
  aborts_.add(member.id);
}

void OperationEnds::give_up(Member& member) {
  if (member.failure) return;
  revoke(member,
         error(ErrorCode::FailedPrecondition, Reason::Revoked,
               "an earlier operation of this communicator failed part-way, so that its ranks no "
               "longer agree on what comes next: call arcCommRebuild on every rank"));
}

}  // namespace arcomm::client
