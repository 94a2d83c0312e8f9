#include "daemon/exec/worker/departures.h"

#include <algorithm>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {

void Departures::drop_members(Session& session, Reason reason, const std::string& why) {
  dropping_.push_back({&session, std::exchange(session.members, {}), reason, why});
  drop_some();
}

bool Departures::drop_some() {
  if (dropping_.empty()) return false;
  Dropping& dropping = dropping_.front();
  Session& session = *dropping.session;
  const auto gone = [&](Rank rank) {
    return make_failure(ErrorCode::Aborted, dropping.reason, rank, "rank %d (pid %d) is gone: %s",
                        rank, static_cast<int>(session.origin().pid), dropping.why.c_str());
  };
  for (std::size_t i = 0; i < kMembersAtOnce && !dropping.members.empty(); ++i) {
    const MemberId id = dropping.members.back();
    dropping.members.pop_back();
    const Member* member = state_.communicators.find(id);
    if (member != nullptr) state_.communicators.drop(id, gone(member->rank));
  }
  if (!dropping.members.empty()) return true;
  // It may have called, and left before the others came.
  if (session.in_flight() != 0) state_.communicators.abandon(session, gone);
  dropping_.pop_front();
  return true;
}

bool Departures::is_dropping(const Session& session) const {
  return std::any_of(dropping_.begin(), dropping_.end(),
                     [&](const Dropping& dropping) { return dropping.session == &session; });
}

void Departures::add(std::unique_ptr<Session> session, Done done) {
  leaving_.push_back({.session = std::move(session), .done = std::move(done)});
}

void Departures::add(SessionId session, MemberId member,
                     std::optional<CommunicatorTable::Committed> waits_for, Done done) {
  if (waits_for && !state_.communicators.ended(*waits_for)) {
    parting_.push_back({session, member, *waits_for, std::move(done)});
  } else if (done) {
    done({});
  }
}

bool Departures::join(SessionId session, MemberId member, const Done& done) {
  const auto found = std::find_if(parting_.begin(), parting_.end(), [&](const Parting& parting) {
    return parting.session == session && parting.member == member;
  });
  if (found == parting_.end()) return false;
  add(session, member, found->waits_for, done);
  return true;
}

void Departures::add_drain(std::uint64_t deadline_ns, Done done) {
  draining_.push_back({deadline_ns, std::move(done)});
}

bool Departures::settle() {
  bool found = drop_some();
  found |= settle_leaving();
  for (std::size_t i = 0; i < parting_.size();) {
    if (!state_.communicators.ended(parting_[i].waits_for)) {
      ++i;
      continue;
    }
    const Parting parting = std::move(parting_[i]);
    parting_.erase(parting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (parting.done) parting.done({});
    found = true;
  }
  if (!draining_.empty() && state_.pending() == 0) {
    for (const Draining& draining : std::exchange(draining_, {})) draining.done({});
    found = true;
  }
  return found;
}

bool Departures::settle_leaving() {
  bool found = false;
  std::size_t left = kHandlesAtOnce;
  for (std::size_t i = 0; i < leaving_.size() && left > 0;) {
    Leaving& leaving = leaving_[i];
    if (leaving.session->in_flight() != 0 || is_dropping(*leaving.session)) {
      ++i;
      continue;
    }
    found = true;
    left -= std::min(left, 1 + leaving.session->plans.size() + leaving.session->buffers.size());
    if (release_some(leaving, kHandlesAtOnce)) return true;
    Leaving gone = std::move(leaving);
    leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
    gone.session.reset();
    gone.done({});
  }
  return found;
}

void Departures::sweep_deadlines(std::uint64_t now_ns) {
  for (Draining& draining : draining_) {
    if (now_ns < draining.deadline_ns) continue;
    draining.deadline_ns = ~std::uint64_t{0};  // once; settle() answers when nothing is left
    state_.communicators.revoke_all(
        make_failure(ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank,
                     "the daemon shut down before the operation ended"));
  }
}

std::uint64_t Departures::next_deadline_ns() const {
  std::uint64_t next = ~std::uint64_t{0};
  for (const Draining& draining : draining_) next = std::min(next, draining.deadline_ns);
  return next;
}

void Departures::give_up() {
  const auto answer = [](const Done& done) {
    if (!done) return;
    done(error(ErrorCode::Unavailable, Reason::ShuttingDown,
               "the device worker stopped before the operations had ended"));
  };
  for (const Leaving& leaving : std::exchange(leaving_, {})) answer(leaving.done);
  for (const Parting& parting : std::exchange(parting_, {})) answer(parting.done);
  for (const Draining& draining : std::exchange(draining_, {})) answer(draining.done);
}

bool Departures::release_some(Leaving& leaving, std::size_t most) {
  Session& session = *leaving.session;
  if (!std::exchange(leaving.unbound, true)) state_.backend->unbind_all(session.plans);
  for (; !session.plans.empty() && most > 0; --most) {
    const std::unique_ptr<PersistentPlan> plan = state_.plans.erase(session.plans.back());
    session.plans.pop_back();
    if (plan == nullptr) continue;
    if (plan->send_buffer.valid()) state_.buffers.drop(plan->send_buffer);
    if (plan->recv_buffer.valid()) state_.buffers.drop(plan->recv_buffer);
  }
  for (; !session.buffers.empty() && most > 0; --most) {
    Result<RemovedBuffer> removed = state_.buffers.remove(session.id(), session.buffers.back());
    session.buffers.pop_back();
    if (removed) {
      state_.backend->release(std::move(removed).value());
    } else {
      log::error("session {}: {}", fmt::streamed(session.id()), removed.error().to_string());
    }
  }
  if (!session.plans.empty() || !session.buffers.empty()) return true;
  if (session.failure_lines.left_out() > 0) log_left_out(session, session.failure_lines.left_out());
  return false;
}

void Departures::release(std::unique_ptr<Session> session) {
  Leaving leaving{.session = std::move(session), .done = {}};
  while (release_some(leaving, kHandlesAtOnce)) {
  }
}

}  // namespace arcomm
