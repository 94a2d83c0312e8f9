// How sessions and their members go: quarantined, gone, or leaving, and what waits until they have.
#include <algorithm>
#include <utility>

#include "daemon/exec/worker/worker.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

void Worker::lose(Session& session, const char* why) {
  const bool known = std::any_of(lost_.begin(), lost_.end(),
                                 [&](const auto& lost) { return lost.first == &session; });
  if (!known && session.readable()) lost_.emplace_back(&session, why);
}

void Worker::quarantine_lost() {
  for (const auto& [session, why] : std::exchange(lost_, {})) {
    log::warn("session {} (pid {}) broke the ring protocol and is quarantined: {}",
              fmt::streamed(session->id()), session->origin().pid, why);
    session->set_state(ring::SessionState::Quarantined, Reason::Quarantined);
    drop_members(*session, Reason::Quarantined, why);
    if (parts_.events.session_lost)
      parts_.events.session_lost(session->id(), Reason::Quarantined, why);
  }
  settle();
}

void Worker::drop_members(Session& session, Reason reason, const std::string& why) {
  const auto gone = [&](Rank rank) {
    return make_failure(ErrorCode::Aborted, reason, rank, "rank %d (pid %d) is gone: %s", rank,
                        static_cast<int>(session.origin().pid), why.c_str());
  };
  for (const MemberId id : std::exchange(session.members, {})) {
    const Member* member = communicators_.find(id);
    if (member != nullptr) communicators_.drop(id, gone(member->rank));
  }
  // It may have called, and left before the others came.
  if (session.in_flight() != 0) communicators_.abandon(session, gone);
}

void Worker::answer_when_ended(Parting parting) {
  if (parting.waits_for && !communicators_.ended(*parting.waits_for)) {
    parting_.push_back(std::move(parting));
  } else if (parting.done) {
    parting.done({});
  }
}

bool Worker::join_parting(SessionId session, MemberId member, const Done<void>& done) {
  const auto found = std::find_if(parting_.begin(), parting_.end(), [&](const Parting& parting) {
    return parting.session == session && parting.member == member;
  });
  if (found == parting_.end()) return false;
  answer_when_ended({session, member, found->waits_for, done});
  return true;
}

void Worker::release(Session& session) {
  if (gpus_ != nullptr) {
    // One rest for all plans. Where it does not come: no later member can start them, and their
    // memory waits for one.
    const Status rested = gpus_->quiesced([&] {
      for (const PlanId id : session.plans) {
        const PersistentPlan* held = plans_.find(id);
        if (held == nullptr) continue;
        if (Status unbound = unbind_from_gpu(id, *held); !unbound)
          log::error("session {}: {}", fmt::streamed(session.id()), unbound.error().to_string());
      }
    });
    if (!rested) log::warn("session {}: {}", fmt::streamed(session.id()), rested.error().message);
  }
  for (const PlanId id : session.plans) {
    const std::unique_ptr<PersistentPlan> plan = plans_.erase(id);
    if (plan == nullptr) continue;
    if (plan->send_buffer.valid()) buffers_.drop(plan->send_buffer);
    if (plan->recv_buffer.valid()) buffers_.drop(plan->recv_buffer);
  }
  for (const BufferId id : session.buffers) {
    Result<RemovedBuffer> removed = buffers_.remove(session.id(), id);
    if (removed) {
      let_go(std::move(removed).value());
    } else {
      log::error("session {}: {}", fmt::streamed(session.id()), removed.error().to_string());
    }
  }
  if (session.failure_lines.left_out() > 0) log_left_out(session, session.failure_lines.left_out());
}

}  // namespace arcomm
