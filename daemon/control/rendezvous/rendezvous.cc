#include "daemon/control/rendezvous/rendezvous.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/control/rendezvous/join_rules.h"

namespace arcomm {

void Rendezvous::join(Call call) {
  if (call.ranks < 1 || call.ranks > kMaxRanks || call.rank < 0 || call.rank >= call.ranks) {
    return call.answer(error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", call.rank,
                             " of ", call.ranks, " is not allowed: 1 to ", kMaxRanks,
                             " ranks, numbered from 0"));
  }
  auto at = meetings_.find(call.unique_id);
  const auto before = at == meetings_.end() ? remembered_.find(call.unique_id, call.called_at)
                                            : std::optional<RememberedEpochs::Epoch>();
  const uid_t owner = before ? before->uid : at != meetings_.end() ? at->second.uid : call.peer.uid;
  if (owner != call.peer.uid) {
    return call.answer(error(ErrorCode::PermissionDenied, Reason::Permission, "uid ", call.peer.uid,
                             " may not join a communicator of another user"));
  }
  if (at == meetings_.end()) {
    at = meetings_.emplace(call.unique_id, LocalMeeting{}).first;
    at->second.uid = owner;
    at->second.ranks = call.ranks;  // a rebuild may have fewer ranks than before
    at->second.epoch = before ? before->number : 0;
    remembered_.forget(call.unique_id);
  }
  LocalMeeting& meeting = at->second;
  if (const std::optional<Error> why = meeting.refuse(call)) return call.answer(*why);
  if (const std::optional<Error> why = disagreement(meeting.calls, meeting.ranks, call)) {
    meeting.calls.emplace(call.rank, std::move(call));
    return fail(at, *why);
  }
  meeting.segment_limit_bytes = call.segment_limit_bytes;
  meeting.elsewhere.missing.clear();  // from before this call
  const UniqueIdBytes unique_id = call.unique_id;
  meeting.calls.emplace(call.rank, std::move(call));
  if (meeting.calls.size() == static_cast<std::size_t>(meeting.ranks)) {
    Part part = meeting.part_of_all();
    part.spec.unique_id = unique_id;
    build(at, std::move(part), nullptr);
  }
  tell_changed(unique_id);
}

void Rendezvous::build(Meetings::iterator at, Part part,
                       std::function<void(const Status&)> formed) {
  LocalMeeting& meeting = at->second;
  const auto prepare = std::exchange(part.prepare, nullptr);
  CommunicatorSpec spec = meeting.begin(std::move(part), std::move(formed));
  meeting.is_preparing = prepare != nullptr;
  const UniqueIdBytes unique_id = at->first;
  auto form = [this, unique_id, worker = meeting.worker, spec = std::move(spec)] {
    form_(worker, spec, [this, unique_id](Result<std::vector<MemberId>> members) {
      built(unique_id, std::move(members));
    });
  };
  if (!prepare) return form();
  prepare([this, unique_id, number = meeting.part.spec.communicator,
           form = std::move(form)](const Status& prepared) {
    const auto now = meetings_.find(unique_id);
    // Otherwise it was given up meanwhile, and another attempt may be under way.
    if (now == meetings_.end() || now->second.state != State::Building ||
        !now->second.is_preparing || now->second.part.spec.communicator != number)
      return;
    now->second.is_preparing = false;
    if (!prepared) return built(unique_id, prepared.error());
    form();
  });
}

void Rendezvous::built(const UniqueIdBytes& unique_id, Result<std::vector<MemberId>> members) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.state != State::Building) return;
  LocalMeeting& meeting = at->second;
  if (members && members->size() != meeting.members.size()) {
    members = error(ErrorCode::Internal, Reason::Bug, "the worker formed ", members->size(), " of ",
                    meeting.members.size(), " ranks");
  }
  // A build that was given up may still be formed, and then revoked, under its number.
  if (members || members.error().code == ErrorCode::DeadlineExceeded)
    meeting.epoch = meeting.part.spec.epoch;
  for (std::size_t i = 0; members && i < members->size(); ++i)
    meeting.members[i].member = (*members)[i];
  const auto formed = std::exchange(meeting.formed, nullptr);
  if (members && !meeting.lost) {
    if (!meeting.spans_nodes()) return make_ready(at);
    meeting.state = State::Formed;
    return formed({});
  }
  // The survivors never hear of their seats, so nobody else would give them back.
  if (members) give_back(meeting);
  const Error why = meeting.lost ? *meeting.lost : members.error();
  const bool waits_on = meeting.waits_on;
  meeting.state = State::Collecting;
  if (waits_on) {
    collect_again(at);
  } else {
    fail(at, why);
  }
  if (formed) formed(why);
}

void Rendezvous::make_ready(Meetings::iterator at) {
  LocalMeeting& meeting = at->second;
  meeting.state = State::Ready;
  ++ready_;
  // The answers may come back here: everything is in place before the first.
  const Part part = meeting.part;
  const std::vector<Live> members = meeting.members;
  const bool same_tables = meeting.same_tables();
  const std::map<Rank, Call> calls = std::exchange(meeting.calls, {});
  for (const Live& member : members) {
    const auto call = calls.find(member.rank);
    if (call == calls.end()) continue;
    call->second.answer(Joined{.member = member.member,
                               .epoch = member.epoch,
                               .rank_devices = part.rank_devices,
                               .segment_limit_bytes = part.segment_limit_bytes,
                               .is_here = part.spec.nodes.empty(),
                               .nodes = static_cast<std::uint32_t>(part.spec.nodes.size()),
                               .policy = part.spec.policy,
                               .same_tables = same_tables});
  }
}

void Rendezvous::give_back(const LocalMeeting& meeting) {
  if (!leave_) return;
  for (const Live& member : meeting.members) leave_(member.worker, member.session, member.member);
}

// Settled before anybody is told: an answer may come back here. A copy, since `why` may be the
// meeting's own.
void Rendezvous::fail(Meetings::iterator at,
                      Error why) {  // NOLINT(performance-unnecessary-value-param)
  const UniqueIdBytes unique_id = at->first;
  const std::map<Rank, Call> calls = std::exchange(at->second.calls, {});
  settle(at);
  if (!calls.empty() && watcher_.failed) watcher_.failed(unique_id, why);
  for (const auto& [rank, call] : calls) call.answer(why);
}

void Rendezvous::settle(Meetings::iterator at) {
  LocalMeeting& meeting = at->second;
  if (!meeting.calls.empty() || meeting.state != State::Collecting) return;
  if (meeting.epoch != 0)
    remembered_.remember(at->first, {.uid = meeting.uid, .number = meeting.epoch}, Clock::now());
  meetings_.erase(at);
}

void Rendezvous::cancel(std::uint64_t serial) {
  if (serial == 0) return;
  for (auto at = meetings_.begin(); at != meetings_.end(); ++at) {
    if (at->second.state != State::Collecting && !at->second.spans_nodes()) continue;
    for (auto call = at->second.calls.begin(); call != at->second.calls.end(); ++call) {
      if (call->second.serial != serial) continue;
      const Rank rank = call->first;
      if (at->second.state != State::Collecting) return at->second.unheard.push_back(rank);
      const UniqueIdBytes unique_id = at->first;
      const Answer answer = std::move(call->second.answer);
      at->second.calls.erase(call);
      settle(at);
      tell_changed(unique_id);
      return answer(
          error(ErrorCode::Cancelled, Reason::None, "the caller of rank ", rank, " went away"));
    }
  }
}

std::optional<Rendezvous::Clock::time_point> Rendezvous::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.state != State::Collecting && !meeting.spans_nodes()) continue;
    for (const auto& [rank, call] : meeting.calls) {
      if (!next || call.deadline < *next) next = call.deadline;
    }
  }
  return next;
}

void Rendezvous::sweep(Clock::time_point now) {
  std::vector<std::pair<Answer, Error>> late;
  std::vector<UniqueIdBytes> changed, parts;
  for (auto& [unique_id, meeting] : meetings_) {
    if (meeting.spans_nodes()) parts.push_back(unique_id);
    if (meeting.state != State::Collecting) continue;
    std::vector<std::pair<Answer, Error>> its = meeting.take_late(now);
    if (!its.empty()) changed.push_back(unique_id);
    std::ranges::move(its, std::back_inserter(late));
  }
  for (const UniqueIdBytes& unique_id : changed) {
    const auto at = meetings_.find(unique_id);
    if (at != meetings_.end()) settle(at);
    tell_changed(unique_id);
  }
  for (auto& [answer, why] : late) answer(std::move(why));
  for (const UniqueIdBytes& unique_id : parts) sweep_part(unique_id, now);
}

void Rendezvous::sweep_part(const UniqueIdBytes& unique_id, Clock::time_point now) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || !at->second.spans_nodes()) return;
  for (const auto& [rank, call] : at->second.calls) {
    if (call.deadline > now) continue;
    return give_up(at,
                   error(ErrorCode::DeadlineExceeded, Reason::Timeout, "all ranks have called, ",
                         at->second.state == State::Formed
                             ? "and this node is ready, but another one was not in time"
                             : "but this node was not ready in time to link and to form"));
  }
}

void Rendezvous::fail_all(const Error& why) {
  Meetings meetings = std::exchange(meetings_, {});
  ready_ = 0;
  for (const auto& [unique_id, meeting] : meetings) {
    if (meeting.state == State::Formed) give_back(meeting);
    if (!meeting.calls.empty() && watcher_.failed) watcher_.failed(unique_id, why);
    for (const auto& [rank, call] : meeting.calls) call.answer(why);
  }
}

void Rendezvous::dissolve(const UniqueIdBytes& unique_id, std::uint64_t epoch,
                          const std::string& why) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.epoch != epoch) return;
  if (at->second.state == State::Formed) {
    return give_up(at, error(ErrorCode::Aborted, Reason::Revoked,
                             "the communicator broke while its nodes formed it",
                             why.empty() ? "" : ": ", why));
  }
  if (at->second.state != State::Ready) return;
  at->second.state = State::Collecting;
  --ready_;
  settle(at);
}

std::optional<Rendezvous::Waiting> Rendezvous::waiting(const UniqueIdBytes& unique_id) const {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.state != State::Collecting || at->second.calls.empty())
    return std::nullopt;
  return at->second.waiting();
}

void Rendezvous::note(const UniqueIdBytes& unique_id, Elsewhere elsewhere) {
  const auto at = meetings_.find(unique_id);
  if (at != meetings_.end() && at->second.state == State::Collecting)
    at->second.elsewhere = std::move(elsewhere);
}

void Rendezvous::build_part(const UniqueIdBytes& unique_id, Part part,
                            std::function<void(const Status&)> formed) {
  build(meetings_.find(unique_id), std::move(part), std::move(formed));
}

Status Rendezvous::commit(const UniqueIdBytes& unique_id, std::uint64_t communicator) {
  const auto at = meetings_.find(unique_id);
  const bool is_here = at != meetings_.end() && at->second.spans_nodes() &&
                       at->second.part.spec.communicator == communicator;
  if (is_here && at->second.state == State::Ready) return {};
  if (!is_here || at->second.state != State::Formed) {
    return error(ErrorCode::FailedPrecondition, Reason::Revoked,
                 "this node has given the communicator up, or never formed it");
  }
  make_ready(at);
  return {};
}

void Rendezvous::abandon(const UniqueIdBytes& unique_id, std::uint64_t communicator,
                         const std::optional<Error>& why) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || !at->second.spans_nodes()) return;
  LocalMeeting& meeting = at->second;
  if (meeting.part.spec.communicator != communicator || meeting.state == State::Ready) return;
  if (why) return give_up(at, *why);
  if (meeting.is_at_the_worker()) {
    if (meeting.lost) return;
    meeting.lost = error(ErrorCode::Aborted, Reason::Revoked, "another node was not ready");
    meeting.waits_on = true;
    return;
  }
  if (meeting.state == State::Formed) give_back(meeting);
  const auto formed = std::exchange(meeting.formed, nullptr);
  collect_again(at);
  if (formed) formed(error(ErrorCode::Aborted, Reason::Revoked, "another node was not ready"));
}

void Rendezvous::refuse(const UniqueIdBytes& unique_id, const Error& why) {
  const auto at = meetings_.find(unique_id);
  if (at != meetings_.end() && at->second.state == State::Collecting) fail(at, why);
}

void Rendezvous::give_up(Meetings::iterator at, const Error& why) {
  LocalMeeting& meeting = at->second;
  std::function<void(const Status&)> formed;
  if (meeting.is_at_the_worker()) {
    meeting.lost = why;  // what is formed goes back when the worker has answered
    meeting.waits_on = false;
  } else {
    if (meeting.state == State::Formed) give_back(meeting);
    meeting.state = State::Collecting;
    formed = std::exchange(meeting.formed, nullptr);
  }
  fail(at, why);
  if (formed) formed(why);
}

void Rendezvous::collect_again(Meetings::iterator at) {
  const UniqueIdBytes unique_id = at->first;
  LocalMeeting& meeting = at->second;
  meeting.state = State::Collecting;
  meeting.waits_on = false;
  std::vector<std::pair<Rank, Answer>> unheard;
  for (const Rank rank : std::exchange(meeting.unheard, {})) {
    if (auto call = meeting.calls.extract(rank))
      unheard.emplace_back(rank, std::move(call.mapped().answer));
  }
  settle(at);
  tell_changed(unique_id);
  for (const auto& [rank, answer] : unheard) {
    answer(error(ErrorCode::Cancelled, Reason::None, "the caller of rank ", rank, " went away"));
  }
}

void Rendezvous::session_gone(SessionId session, pid_t pid, Reason reason) {
  std::vector<UniqueIdBytes> held;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.has(session)) held.push_back(unique_id);
  }
  // By name: what is settled may make another forgotten, and an answer may come back here.
  for (const UniqueIdBytes& unique_id : held) {
    const auto at = meetings_.find(unique_id);
    if (at != meetings_.end()) session_gone(at, session, pid, reason);
  }
}

void Rendezvous::session_gone(Meetings::iterator at, SessionId session, pid_t pid, Reason reason) {
  LocalMeeting& meeting = at->second;
  if (meeting.state == State::Ready) {
    meeting.state = State::Collecting;
    --ready_;
    return settle(at);
  }
  for (const auto& [rank, call] : meeting.calls) {
    if (call.session != session) continue;
    Error why = error(ErrorCode::Aborted, reason, "rank ", rank, " (pid ", pid,
                      ") ended while the communicator was forming");
    why.rank = rank;
    if (meeting.is_at_the_worker()) {
      meeting.lost = std::move(why);  // the worker's answer is on its way
      meeting.waits_on = false;
      return;
    }
    if (meeting.state != State::Collecting) return give_up(at, why);
    return fail(at, std::move(why));
  }
}

std::optional<Rendezvous::Live> Rendezvous::live(const UniqueIdBytes& unique_id, uid_t uid,
                                                 Rank rank) const {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.state != State::Ready || at->second.uid != uid ||
      rank < 0 || rank >= at->second.ranks) {
    return std::nullopt;
  }
  const Live* held = at->second.find(rank);
  return held != nullptr ? *held : at->second.members.front();
}

std::vector<Rendezvous::Forming> Rendezvous::forming() const {
  std::vector<Forming> all;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.calls.empty()) continue;
    all.push_back(meeting.forming());
    all.back().unique_id = unique_id;
  }
  return all;
}

}  // namespace arcomm
