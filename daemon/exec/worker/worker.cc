#include "daemon/exec/worker/worker.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/revocation.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Of what is between nodes in one turn: sessions are looked at in between.
constexpr int kMostRounds = 4;
constexpr std::uint64_t kEndingNs = 5'000'000'000;  // for what was stopped
constexpr std::uint64_t kLinksEndNs = 500'000'000;  // for what was stopped and is on its way
// Whose next requests a core can fetch side by side.
constexpr std::size_t kFetchedAhead = 16;

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(DeviceWorker::Parts parts) {
  if (parts.settings == nullptr || parts.tuning == nullptr || !parts.open_backend) {
    return error(ErrorCode::InvalidArgument, Reason::Bug,
                 "a device worker needs settings, a tuning table and a backend");
  }
  std::unique_ptr<Worker> worker(new Worker(std::move(parts)));
  WorkerState& state = worker->state_;
  const DeviceWorker::Parts& held = state.parts;
  Result<std::unique_ptr<Backend>> backend = held.open_backend({.buffers = state.buffers,
                                                                .plans = state.plans,
                                                                .metrics = held.metrics,
                                                                .settings = *held.settings,
                                                                .tuning = held.tuning});
  if (!backend) return std::move(backend).error();
  state.backend = std::move(backend).value();
  state.admission.limits.doorbells_only = state.backend->starts_by_doorbell();
  NetworkExecutor* const executor = state.backend->span_nodes(state.nodes.links(), state.nodes);
  if (executor != nullptr) executor->record_with(held.recorder);
  state.nodes.use(executor);
  state.nodes.use_staging(held.settings->net.staging_bytes);
  state.nodes.tell(held.events.link_lost);
  return worker;
}

Worker::Worker(DeviceWorker::Parts parts)
    : state_(std::move(parts), [this](Communicator& communicator) { on_revoked(communicator); }) {}

Worker::~Worker() {
  while (!shut_down()) ::sched_yield();
}

bool Worker::poll_sessions() {
  bool found = poll_device();
  const std::span<Session* const> polled = state_.sessions.all();
  const std::size_t count = polled.size();
  shares_.begin(count);
  plans_.begin_turn();
  if (count == 0) return found;
  first_polled_ = (first_polled_ + 1) % count;  // nobody is always first
  if (count <= kFetchedAhead) {
    for (Session* session : polled) session->fetch_ahead();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = first_polled_ + i;
    found |= poll(*polled[at < count ? at : at - count]);
  }
  if (quarantine_.is_due()) impose_quarantine();
  return found;
}

bool Worker::poll(Session& session) {
  ring::WorkRequest slot;
  std::uint64_t now = 0;  // read once for a batch, and only if there is one
  session.low_backlog = false;
  int taken = 0;
  for (; shares_.reads_on(taken); ++taken) {
    if (!session.readable() || plans_.are_due_next_turn()) return taken != 0;
    const ring::Pop seen = session.peek();
    if (seen == ring::Pop::Empty) {
      shares_.emptied(session, taken);
      return taken != 0;
    }
    const Session::Room room = session.room();
    if (room == Session::Room::No) return taken != 0;
    if (room == Session::Room::Corrupt) {
      quarantine_.mark(session, "the completion ring's index left its bounds");
    } else if (seen == ring::Pop::Corrupt || session.pop(slot) != ring::Pop::Done) {
      quarantine_.mark(session, "the request ring's index or a slot's position is wrong");
    } else if (slot.magic == ring::kPlanMagic) {
      answer_plan(session, slot);
      break;  // one in a turn: whoever floods with them holds up nobody for longer
    } else {
      if (now == 0) now = now_ns();
      admit(session, slot, now);
      continue;
    }
    return true;
  }
  shares_.left(session, taken, session.readable() && session.peek() != ring::Pop::Empty);
  return true;
}

bool Worker::poll_device() {
  const std::span<const DoorbellCall> calls = state_.backend->poll();
  if (calls.empty()) return false;
  const std::uint64_t now = now_ns();  // read once for a sweep, and only if there is something
  for (const DoorbellCall& call : calls) take(call, now);
  if (quarantine_.is_due()) impose_quarantine();
  return true;
}

void Worker::take(const DoorbellCall& call, std::uint64_t now_ns) {
  Session* session = state_.sessions.find(call.session);
  const Member* member = state_.communicators.find(call.member);
  // Its communicator may have ended by a call before this one: then its mailbox says so.
  if (session == nullptr || !session->readable() || member == nullptr ||
      !member->communicator->ready())
    return;
  if (!call.in_order)
    return quarantine_.mark(*session, "the number at a doorbell is not the next one");
  const Admitted admitted =
      state_.admission.admit_doorbell(*session, call.member, call.doorbell, now_ns);
  if (admitted.verdict == Admitted::Verdict::Done) return accept(*session, *admitted.operation);
  state_.completions.refuse_doorbell(*session, admitted, now_ns);
  refuse_on_all_ranks(state_, admitted, now_ns);
  if (admitted.member == nullptr) return;
  // Its client waits in a stream, and there is one way to tell it.
  Failure told = admitted.failure;
  told.culprit = admitted.member->rank;
  state_.communicators.revoke(*admitted.member->communicator, told);
}

void Worker::catch_up() {
  // What was launched speculatively may have ended before its call was seen here, and be followed
  // by one more.
  const int turns = state_.backend->turns_behind();
  for (int turn = 0; turn < turns && poll_device(); ++turn) {
    execute();
    reap();
    settle();
  }
}

void Worker::admit(Session& session, const ring::WorkRequest& slot, std::uint64_t now_ns) {
  Admitted admitted = state_.admission.admit(session, slot, now_ns);
  switch (admitted.verdict) {
    case Admitted::Verdict::Broken:
      return quarantine_.mark(session, "a request slot does not start with its magic");
    case Admitted::Verdict::Done:
      return accept(session, *admitted.operation);
    case Admitted::Verdict::Refused:
      break;
  }
  if (!state_.completions.refuse(session, slot, admitted, now_ns)) {
    quarantine_.mark(session, "the completion ring's index left its bounds");
  }
  refuse_on_all_ranks(state_, admitted, now_ns);
}

void Worker::answer_plan(Session& session, const ring::WorkRequest& slot) {
  const Result<PlanId> answer = plans_.answer(session, slot);
  // Catching up may have shown that its client is lost.
  if (session.readable() && !state_.completions.answer_plan(session, slot.ticket, answer))
    quarantine_.mark(session, "the completion ring's index left its bounds");
}

void Worker::accept(Session& session, Operation& operation) {
  ++session.submitted;
  state_.parts.metrics.operations_in_flight.add(1);
  state_.parts.recorder.write(operation.record);
  state_.communicators.arrive(operation);
}

bool Worker::settle() {
  bool found = false;
  std::uint64_t now = 0;
  while (Operation* operation = state_.communicators.finished().pop()) {
    if (now == 0) now = now_ns();
    Session& session = *operation->session;
    const bool unheard = operation->by_doorbell && !operation->outcome.ok();
    const MemberId member = operation->member;
    const Failure failure = unheard ? operation->outcome : Failure{};
    if (!state_.completions.finish(*operation, now))
      quarantine_.mark(session, "the completion ring's index left its bounds");
    if (!std::exchange(session.to_be_woken, true)) to_wake_.push_back(&session);
    // Nobody else hears of it. After a leave in good order what all had called still runs.
    const Member* called = unheard ? state_.communicators.find(member) : nullptr;
    if (called != nullptr && called->communicator->ended.ok())
      state_.communicators.revoke(*called->communicator, failure);
    found = true;
  }
  if (!to_wake_.empty()) wake_clients();
  if (quarantine_.is_due()) impose_quarantine();
  return found;
}

void Worker::wake_clients() {
  ring::order_published();
  for (Session* session : to_wake_) {
    session->to_be_woken = false;
    session->wake_in_order();
  }
  to_wake_.clear();
}

void Worker::start(Communicator& communicator) {
  const Arrival& arrival = *communicator.board.head();
  const std::uint64_t now = now_ns();
  Failure failure = arrival.failure;
  if (failure.ok() && arrival.deadline_ns <= now) {
    state_.communicators.expire(communicator, now);
    failure = arrival.failure;
  }
  if (!failure.ok()) return state_.communicators.completed(communicator, failure);
  for (std::size_t seat = 0; communicator.spans_nodes() && seat < communicator.seats.size(); ++seat)
    arrival.operations[seat]->record.agreed_ns = arrival.agreed_ns;
  switch (state_.backend->start(communicator, now, failure)) {
    case Backend::Started::Ended:
      return state_.communicators.completed(communicator, failure);
    case Backend::Started::Running:
      if (!failure.ok()) state_.communicators.revoke(communicator, failure);
  }
}

bool Worker::execute() {
  bool found = false;
  // Answered one by one: the first of many must not wait for the last.
  shares_.begin_starts();
  for (int started = 0; shares_.starts_on(started); ++started) {
    Communicator* communicator = state_.communicators.next_ready();
    if (communicator == nullptr) break;
    start(*communicator);
    settle();
    found = true;
  }
  return work() || found;
}

// What GPUs put on its way to other nodes leaves in this turn, and what has come meanwhile is used
// in it: each step between nodes would else wait for all else that a turn does. On the host one
// call may be a tile of a long operation.
bool Worker::work() {
  const int rounds = state_.nodes.has_links() && state_.backend->on_gpus() ? kMostRounds : 1;
  bool found = false;
  for (int round = 0; round < rounds && state_.backend->work(); ++round) {
    found = true;
    if (rounds > 1) state_.nodes.poll(now_ns());
  }
  return found;
}

void Worker::apply(std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    Communicator& communicator = *outcome.communicator;
    if (outcome.ended) {
      state_.communicators.completed(communicator, outcome.failure);
    } else {
      // The others' parts may wait for the one that failed.
      state_.communicators.revoke(communicator, outcome.failure);
      state_.backend->stop(communicator);  // where it had been revoked already
    }
  }
  outcomes.clear();
}

bool Worker::reap() {
  bool found = state_.backend->collect(outcomes_);
  if (found) {
    apply(outcomes_);
    settle();
  }
  return departures_.settle() || found;
}

void Worker::sweep_deadlines(std::uint64_t now_ns) {
  state_.communicators.sweep_deadlines(now_ns);
  for (const PathFailure& failed : state_.backend->tend(now_ns))
    note_path_failure(state_, failed, now_ns);
  departures_.sweep_deadlines(now_ns);
  state_.nodes.tend(now_ns);
}

void Worker::impose_quarantine() {
  quarantine_.impose();
  settle();
}

bool Worker::look_at_nodes(std::uint64_t now_ns) {
  if (state_.nodes.is_alone()) return false;
  bool found = state_.nodes.poll(now_ns, true);
  found |= settle();
  found |= execute();
  return reap() || found;
}

Worker::Rest Worker::arm() {
  Rest rest = Rest::Sleep;
  for (Session* session : state_.sessions.all()) session->requests_bell().arm();
  for (Session* session : state_.sessions.all()) {
    if (!session->readable() || session->peek() == ring::Pop::Empty) continue;
    if (session->room() != Session::Room::No) return Rest::Awake;
    rest = Rest::Nap;
  }
  return rest;
}

void Worker::disarm() {
  for (Session* session : state_.sessions.all()) session->requests_bell().disarm();
}

std::uint64_t Worker::next_deadline_ns() const {
  return std::min({state_.communicators.next_deadline_ns(), departures_.next_deadline_ns(),
                   state_.nodes.next_ns()});
}

void Worker::on_revoked(Communicator& communicator) {
  state_.nodes.revoked(communicator);
  state_.backend->stop(communicator);
  tell_revoked(state_, communicator);
}

bool Worker::shut_down() {
  if (state_.backend == nullptr) return true;  // it was never complete
  state_.backend->begin_turn();
  if (is_shut_down_) return state_.backend->shut_down();
  const std::uint64_t now = now_ns();
  if (ending_since_ns_ == 0) {
    ending_since_ns_ = now;
    state_.communicators.revoke_all(make_failure(ErrorCode::Unavailable, Reason::ShuttingDown,
                                                 kNoRank,
                                                 "the daemon stopped before the operation ended"));
  }
  state_.backend->work();
  if (state_.backend->collect(outcomes_)) apply(outcomes_);
  settle();
  state_.nodes.poll(now, true);
  // A peer that does not read holds up what is on its way to it.
  if (state_.nodes.has_links() && !state_.backend->idle() && now < ending_since_ns_ + kLinksEndNs)
    return false;
  if (!state_.nodes.end_links()) return false;
  if (!state_.backend->idle()) {
    if (!state_.backend->may_be_left_running() || now < ending_since_ns_ + kEndingNs) return false;
    log::error("operations of {} did not end when they were stopped", state_.parts.device);
  }
  is_shut_down_ = true;
  let_all_go();
  return state_.backend->shut_down();
}

void Worker::let_all_go() {
  std::vector<SessionId> ids;
  for (Session* session : state_.sessions.all()) {
    if (session->readable()) session->set_state(ring::SessionState::Closed, Reason::ShuttingDown);
    ids.push_back(session->id());
  }
  reap();
  while (departures_.settle()) {
  }
  for (const SessionId id : ids) departures_.release(state_.sessions.remove(id));
  departures_.give_up();
  state_.buffers.leave_used();
  state_.communicators.clear();
}

}  // namespace arcomm
