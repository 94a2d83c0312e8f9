#include "daemon/control/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

namespace arcomm {
namespace {

constexpr auto kAnswerBefore = std::chrono::milliseconds(50);

// "ranks 1, 3 of 4 have not called"
std::string absent(const std::map<Rank, Rendezvous::Call>& calls, int ranks) {
  std::ostringstream text;
  int missing = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (calls.contains(rank)) continue;
    text << (missing++ == 0 ? "" : ", ") << rank;
  }
  return (missing == 1 ? "rank " : "ranks ") + text.str() + " of " + std::to_string(ranks) +
         (missing == 1 ? " has not called" : " have not called");
}

Rank first_absent(const std::map<Rank, Rendezvous::Call>& calls) {
  Rank rank = 0;
  while (calls.contains(rank)) ++rank;
  return rank;
}

const Rendezvous::Call* same_gpu(const std::map<Rank, Rendezvous::Call>& calls,
                                 const Rendezvous::Call& newcomer) {
  if (!newcomer.on_gpu) return nullptr;
  for (const auto& [rank, call] : calls) {
    if (call.device == newcomer.device) return &call;
  }
  return nullptr;
}

Error refuse_duplicate(const Rendezvous::Call& call, SessionId holder, const char* state) {
  return error(ErrorCode::AlreadyExists, Reason::BadValue, "rank ", call.rank,
               " of this communicator ", state, " in session ", holder,
               ": give every rank its own number, or use a new unique id");
}

}  // namespace

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
    at = meetings_.emplace(call.unique_id, Meeting{}).first;
    at->second.uid = owner;
    at->second.ranks = call.ranks;  // a rebuild may have fewer ranks than before
    at->second.epoch = before ? before->number : 0;
    remembered_.forget(call.unique_id);
  }
  Meeting& meeting = at->second;
  if (meeting.state == State::Ready) {
    if (call.rank < meeting.ranks) {
      const Live& holder = meeting.members[static_cast<std::size_t>(call.rank)];
      return call.answer(refuse_duplicate(call, holder.session, "is in use"));
    }
    return call.answer(error(ErrorCode::InvalidArgument, Reason::Mismatch,
                             "this communicator is ready with ", meeting.ranks,
                             " ranks and the call says ", call.ranks));
  }
  if (const auto taken = meeting.calls.find(call.rank); taken != meeting.calls.end()) {
    return call.answer(refuse_duplicate(call, taken->second.session, "has already called"));
  }
  if (meeting.state == State::Building) {
    return call.answer(error(ErrorCode::AlreadyExists, Reason::BadValue,
                             "this communicator is being built with ", meeting.ranks,
                             " ranks; rank ", call.rank, " comes too late"));
  }
  if (meeting.ranks != call.ranks) {
    const Rank other = meeting.calls.begin()->first;
    Error why = error(ErrorCode::InvalidArgument, Reason::Mismatch,
                      "the ranks disagree about their number: rank ", other, " says ",
                      meeting.ranks, " and rank ", call.rank, " says ", call.ranks);
    why.rank = call.rank;
    meeting.calls.emplace(call.rank, std::move(call));
    return fail(at, why);
  }
  if (!meeting.calls.empty() && meeting.calls.begin()->second.worker != call.worker) {
    const Call& other = meeting.calls.begin()->second;
    Error why = error(ErrorCode::Unimplemented, Reason::Unsupported, "rank ", other.rank, " is on ",
                      other.device, " and rank ", call.rank, " on ", call.device,
                      ": a communicator's ranks are all on GPUs or all on the host");
    meeting.calls.emplace(call.rank, std::move(call));
    return fail(at, why);
  }
  if (call.on_gpu && call.launch_table_version != kLaunchTableVersion) {
    // It would take ways of its own, and the others would wait for it.
    Error why = error(ErrorCode::FailedPrecondition, Reason::Version, "rank ", call.rank, " (pid ",
                      call.peer.pid, ") has a libarclient that reads launch tables of version ",
                      call.launch_table_version, ", and this daemon makes those of version ",
                      kLaunchTableVersion, ": use a library and a daemon of one version");
    why.rank = call.rank;
    meeting.calls.emplace(call.rank, std::move(call));
    return fail(at, why);
  }
  if (const Call* other = same_gpu(meeting.calls, call); other != nullptr) {
    Error why = error(ErrorCode::InvalidArgument, Reason::Mismatch, "ranks ", other->rank, " and ",
                      call.rank, " of this communicator are both on ", call.device,
                      ": give every rank a GPU of its own (arcInit or the communicator's device)");
    why.rank = call.rank;
    meeting.calls.emplace(call.rank, std::move(call));
    return fail(at, why);
  }
  meeting.segment_limit_bytes = call.segment_limit_bytes;
  meeting.calls.emplace(call.rank, std::move(call));
  if (meeting.calls.size() == static_cast<std::size_t>(meeting.ranks)) build(at);
}

void Rendezvous::build(Meetings::iterator at) {
  Meeting& meeting = at->second;
  meeting.state = State::Building;
  meeting.lost.reset();
  meeting.worker = meeting.calls.begin()->second.worker;
  CommunicatorSpec seed{.unique_id = at->first, .epoch = meeting.epoch + 1, .ranks = {}};
  Clock::time_point deadline = Clock::time_point::max();
  for (const auto& [rank, call] : meeting.calls) {
    deadline = std::min(deadline, call.deadline);
    seed.ranks.push_back({.session = call.session,
                          .rank = rank,
                          .device = call.on_gpu ? call.device : std::string(),
                          .visible_gpus = call.visible_gpus,
                          .in_stream_abi = call.in_stream_abi,
                          .in_stream_hindrance = call.in_stream_hindrance});
  }
  // Who waits for it hears what it waited for.
  seed.deadline_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(deadline.time_since_epoch() - kAnswerBefore).count());
  const UniqueIdBytes unique_id = at->first;
  form_(meeting.worker, std::move(seed), [this, unique_id](Result<std::vector<MemberId>> members) {
    built(unique_id, std::move(members));
  });
}

void Rendezvous::built(const UniqueIdBytes& unique_id, Result<std::vector<MemberId>> members) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.state != State::Building) return;
  Meeting& meeting = at->second;
  if (members && members->size() != static_cast<std::size_t>(meeting.ranks)) {
    members = error(ErrorCode::Internal, Reason::Bug, "the worker formed ", members->size(), " of ",
                    meeting.ranks, " ranks");
  }
  // A build that was given up may still be formed, and then revoked, under its number.
  if (members || members.error().code == ErrorCode::DeadlineExceeded) ++meeting.epoch;
  if (members && meeting.lost && leave_) {
    // The survivors never hear of their seats, so nobody else would give them back.
    for (const auto& [rank, call] : meeting.calls)
      leave_(meeting.worker, call.session, (*members)[static_cast<std::size_t>(rank)]);
  }
  if (!members || meeting.lost) {
    meeting.state = State::Collecting;
    return fail(at, meeting.lost ? meeting.lost->second : members.error());
  }
  meeting.state = State::Ready;
  ++ready_;
  meeting.members.clear();
  std::vector<std::string> devices;
  for (const auto& [rank, call] : meeting.calls) {
    meeting.members.push_back(
        {call.session, (*members)[static_cast<std::size_t>(rank)], meeting.worker, meeting.epoch});
    devices.push_back(call.device);
  }
  // The answers may come back here: everything is in place before the first.
  const std::uint64_t epoch = meeting.epoch, limit = meeting.segment_limit_bytes;
  const std::map<Rank, Call> calls = std::exchange(meeting.calls, {});
  for (const auto& [rank, call] : calls) {
    call.answer(Joined{(*members)[static_cast<std::size_t>(rank)], epoch, devices, limit});
  }
}

// Settled before anybody is told: an answer may come back here. A copy, since `why` may be the
// meeting's own.
void Rendezvous::fail(Meetings::iterator at,
                      Error why) {  // NOLINT(performance-unnecessary-value-param)
  const std::map<Rank, Call> calls = std::exchange(at->second.calls, {});
  settle(at);
  for (const auto& [rank, call] : calls) call.answer(why);
}

void Rendezvous::settle(Meetings::iterator at) {
  Meeting& meeting = at->second;
  if (!meeting.calls.empty() || meeting.state == State::Building || meeting.state == State::Ready)
    return;
  if (meeting.epoch != 0)
    remembered_.remember(at->first, {.uid = meeting.uid, .number = meeting.epoch}, Clock::now());
  meetings_.erase(at);
}

void Rendezvous::cancel(std::uint64_t serial) {
  if (serial == 0) return;
  for (auto at = meetings_.begin(); at != meetings_.end(); ++at) {
    if (at->second.state != State::Collecting) continue;
    for (auto call = at->second.calls.begin(); call != at->second.calls.end(); ++call) {
      if (call->second.serial != serial) continue;
      const Rank rank = call->first;
      const Answer answer = std::move(call->second.answer);
      at->second.calls.erase(call);
      settle(at);
      return answer(
          error(ErrorCode::Cancelled, Reason::None, "the caller of rank ", rank, " went away"));
    }
  }
}

std::optional<Rendezvous::Clock::time_point> Rendezvous::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.state != State::Collecting) continue;
    for (const auto& [rank, call] : meeting.calls) {
      if (!next || call.deadline < *next) next = call.deadline;
    }
  }
  return next;
}

void Rendezvous::sweep(Clock::time_point now) {
  std::vector<std::pair<Answer, Error>> late;
  std::vector<UniqueIdBytes> changed;
  for (auto& [unique_id, meeting] : meetings_) {
    if (meeting.state != State::Collecting) continue;
    const std::size_t calls = meeting.calls.size();
    const std::string missing = absent(meeting.calls, meeting.ranks);
    const Rank culprit = first_absent(meeting.calls);
    for (auto call = meeting.calls.begin(); call != meeting.calls.end();) {
      if (call->second.deadline > now) {
        ++call;
        continue;
      }
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
          call->second.deadline - call->second.called_at);
      Error why = error(ErrorCode::DeadlineExceeded, Reason::Timeout, "rank ", call->first,
                        " waited ", waited.count(), " ms for the other ranks: ", missing);
      why.rank = culprit;
      late.emplace_back(std::move(call->second.answer), std::move(why));
      call = meeting.calls.erase(call);
    }
    if (meeting.calls.size() != calls) changed.push_back(unique_id);
  }
  for (const UniqueIdBytes& unique_id : changed) {
    const auto at = meetings_.find(unique_id);
    if (at != meetings_.end()) settle(at);
  }
  for (auto& [answer, why] : late) answer(std::move(why));
}

void Rendezvous::fail_all(const Error& why) {
  Meetings meetings = std::exchange(meetings_, {});
  ready_ = 0;
  for (const auto& [unique_id, meeting] : meetings) {
    for (const auto& [rank, call] : meeting.calls) call.answer(why);
  }
}

void Rendezvous::dissolve(const UniqueIdBytes& unique_id, std::uint64_t epoch) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.state != State::Ready || at->second.epoch != epoch)
    return;
  at->second.state = State::Collecting;
  --ready_;
  settle(at);
}

void Rendezvous::session_gone(SessionId session, pid_t pid, Reason reason) {
  std::vector<UniqueIdBytes> held;
  for (const auto& [unique_id, meeting] : meetings_) {
    const bool lives = std::any_of(meeting.members.begin(), meeting.members.end(),
                                   [&](const Live& member) { return member.session == session; });
    const bool calls =
        std::any_of(meeting.calls.begin(), meeting.calls.end(),
                    [&](const auto& call) { return call.second.session == session; });
    if (lives || calls) held.push_back(unique_id);
  }
  // By name: what is settled may make another forgotten, and an answer may come back here.
  for (const UniqueIdBytes& unique_id : held) {
    const auto at = meetings_.find(unique_id);
    if (at != meetings_.end()) session_gone(at, session, pid, reason);
  }
}

void Rendezvous::session_gone(Meetings::iterator at, SessionId session, pid_t pid, Reason reason) {
  Meeting& meeting = at->second;
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
    if (meeting.state == State::Building) {
      meeting.lost = {rank, std::move(why)};  // the worker's answer is on its way
      return;
    }
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
  return at->second.members[static_cast<std::size_t>(rank)];
}

std::vector<Rendezvous::Forming> Rendezvous::forming() const {
  std::vector<Forming> all;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.calls.empty()) continue;
    Forming one{.unique_id = unique_id,
                .epoch = meeting.epoch + 1,
                .ranks = meeting.ranks,
                .called = {},
                .diagnosis = {}};
    for (const auto& [rank, call] : meeting.calls) {
      one.called.push_back({rank, call.session, call.peer.pid, call.called_at});
    }
    one.diagnosis = meeting.state == State::Building
                        ? "all ranks have called; the worker forms the communicator"
                        : absent(meeting.calls, meeting.ranks);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace arcomm
