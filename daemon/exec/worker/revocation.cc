#include "daemon/exec/worker/revocation.h"

#include <algorithm>
#include <string>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Somebody asked for the end, or a process ended that nobody waited for: that is everyday life.
bool is_orderly(const Communicator& communicator) {
  const Reason why = communicator.revoked.reason;
  return why == Reason::RemoteAborted || why == Reason::ShuttingDown ||
         (why == Reason::RemoteDied && communicator.cut_off == 0);
}

}  // namespace

void refuse_on_all_ranks(WorkerState& state, const Admitted& refused, std::uint64_t now_ns) {
  Member* member = refused.member;
  if (member == nullptr) return;
  // The caller's mistake ends this operation on all ranks, so that nobody waits for it until the
  // deadline.
  Failure told = refused.failure;
  if (told.reason != Reason::ShuttingDown) told.code = ErrorCode::FailedPrecondition;
  told = make_failure(told.code, told.reason, member->rank, "refused on rank %d: %s", member->rank,
                      refused.failure.text.data());
  if (!refused.out_of_step) {
    const bool late = told.reason == Reason::Timeout;
    if (late) told.code = ErrorCode::DeadlineExceeded;
    Communicator& communicator = *member->communicator;
    state.communicators.refuse(*member, refused.seq, told, now_ns);
    // As after any other timeout: its client has given it up.
    if (late) state.communicators.revoke(communicator, told);
    return;
  }
  const bool skipped = refused.seq > member->communicator->seats[member->seat].next_seq;
  told.code = ErrorCode::Aborted;
  if (skipped) state.communicators.revoke(*member->communicator, told);
}

void note_path_failure(WorkerState& state, const PathFailure& failed, std::uint64_t now_ns) {
  Communicator& communicator = *failed.communicator;
  if (!communicator.ready()) return;
  const Failure& failure = failed.failure;
  state.parts.metrics.operations[failure.code].add();
  FlightRecord record{.unique_id_prefix = prefix_of(communicator.unique_id),
                      .epoch = communicator.epoch,
                      .seq = failed.number,
                      .done_ns = now_ns,
                      .rank = failed.rank,
                      .culprit = failure.culprit,
                      .pid = communicator.seat(failed.rank).pid,
                      .algorithm = failed.algorithm,
                      .code = failure.code,
                      .reason = failed.crossed == nullptr ? failure.reason : Reason::Crossed};
  state.parts.recorder.write(record);
  ++communicator.operations_failed;
  if (failed.crossed != nullptr) {
    state.communicators.revoke_crossed(communicator, *failed.crossed, failure.culprit);
  } else {
    state.communicators.revoke(communicator, failure);
  }
}

void tell_revoked(WorkerState& state, const Communicator& communicator) {
  const Failure& why = communicator.revoked;
  state.parts.metrics.communicators_revoked[why.reason].add();
  const std::string line =
      fmt::format("communicator {} epoch {} is revoked: {} ({}); {} operations ended with it",
                  short_name(communicator.unique_id), communicator.epoch, why.message(),
                  name_of(why.reason), communicator.cut_off);
  // All its ranks are one user's, of whom some may have left.
  const auto present = std::ranges::find_if(communicator.seats, [&state](const Seat& seat) {
    return state.sessions.find(seat.session) != nullptr;
  });
  if (present == communicator.seats.end() ||
      log::admits(log::About::Operations, state.sessions.find(present->session)->origin().uid)) {
    is_orderly(communicator) ? log::info("{}", line) : log::warn("{}", line);
  }
  if (state.parts.events.communicator_revoked) {
    state.parts.events.communicator_revoked(communicator.unique_id, communicator.epoch, why.reason,
                                            std::string(why.message()));
  }
}

}  // namespace arcomm
