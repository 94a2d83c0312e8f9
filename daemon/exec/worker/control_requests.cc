#include "daemon/exec/worker/control_requests.h"

#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/snapshot.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/device.h"

namespace arcomm {

int ControlRequests::doorbell_of(SessionId id) const {
  const Session* session = state_.sessions.find(id);
  return session == nullptr ? -1 : session->doorbell_fd();
}

Status ControlRequests::open_session(SessionSpec spec, std::uint64_t now_ns) {
  return state_.sessions.open(std::move(spec), state_.admission.limits.draining, now_ns);
}

void ControlRequests::close_session(SessionId id, Reason reason, const std::string& why,
                                    Done<void> done) {
  worker_.catch_up();
  std::unique_ptr<Session> session = state_.sessions.remove(id);
  if (session == nullptr) return done(state_.sessions.need(id).error());
  // What was answered stays answered; what is still unread in the ring was never accepted.
  const bool orderly = reason == Reason::None;
  if (session->readable()) session->set_state(ring::SessionState::Closed, reason);
  departures_.drop_members(*session, orderly ? Reason::RemoteAborted : reason, why);
  worker_.settle();
  state_.sessions.update_oversubscription();
  departures_.add(std::move(session), std::move(done));
  worker_.reap();
}

void ControlRequests::let_go(BufferSpec& spec) {
  if (spec.memory) state_.buffers.let_go(std::move(spec.memory));
  for (MemoryChunk& chunk : spec.chunks) {
    if (chunk.memory) state_.buffers.let_go(std::move(chunk.memory));
  }
  spec.token.reset();
}

Result<BufferId> ControlRequests::add_buffer(SessionId id, BufferSpec& spec) {
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return std::move(session).error();
  Result<BufferId> buffer = state_.backend->add_buffer(id, spec);
  if (!buffer) return buffer;
  (*session)->buffers.push_back(*buffer);
  (*session)->registered_bytes += state_.buffers.find(id, *buffer)->length_bytes();
  return buffer;
}

Result<AllocatedBuffer> ControlRequests::allocate_buffer(SessionId id, const AllocationSpec& spec) {
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return std::move(session).error();
  Result<AllocatedBuffer> allocated = state_.backend->allocate_buffer(id, spec);
  if (!allocated) return allocated;
  (*session)->buffers.push_back(allocated->buffer);
  (*session)->registered_bytes += allocated->length_bytes;
  return allocated;
}

Status ControlRequests::remove_buffer(SessionId id, BufferId buffer) {
  worker_.catch_up();
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return std::move(session).error();
  const Buffer* held = state_.buffers.find(id, buffer);
  const std::uint64_t length = held == nullptr ? 0 : held->length_bytes();
  Result<RemovedBuffer> removed = state_.buffers.remove(id, buffer);
  if (!removed) return std::move(removed).error();
  state_.backend->release(std::move(removed).value());
  std::erase((*session)->buffers, buffer);
  (*session)->registered_bytes -= length;
  return {};
}

Result<PlanId> ControlRequests::add_plan(SessionId id, const PlanSpec& spec) {
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return std::move(session).error();
  Result<PlanId> made = worker_.plans().add(**session, spec);
  if (made) ++(*session)->paid_plans;
  return made;
}

void ControlRequests::pay_plans(SessionId id, std::uint64_t more) {
  if (Session* session = state_.sessions.find(id)) session->paid_plans += more;
}

Status ControlRequests::remove_plan(SessionId id, PlanId plan) {
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return std::move(session).error();
  ARC_RETURN_IF_ERROR(worker_.plans().remove(**session, plan));
  --(*session)->paid_plans;
  return {};
}

Result<std::vector<Seat>> ControlRequests::take_seats(const CommunicatorSpec& spec,
                                                      const World& world) const {
  if (spec.ranks.empty() || spec.ranks.size() > static_cast<std::size_t>(kMaxRanks)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a communicator has 1 to ",
                 kMaxRanks, " ranks, not ", spec.ranks.size());
  }
  if (spec.ranks.size() != world.seated().size()) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "this node has ",
                 world.seated().size(), " ranks, not ", spec.ranks.size());
  }
  std::vector<Seat> seats;
  for (const RankSpec& rank : spec.ranks) {
    const Session* session = state_.sessions.find(rank.session);
    // A session may die while its communicator gathers: the others must not be left with a hole.
    if (session == nullptr || !session->readable()) {
      Error gone = error(ErrorCode::Aborted, Reason::RemoteDied, "rank ", rank.rank, "'s session ",
                         rank.session, " ended while the communicator was being formed");
      gone.rank = rank.rank;
      return gone;
    }
    if (rank.rank != world.seated()[seats.size()]) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue,
                   "ranks must be complete and sorted: found ", rank.rank, " in place of ",
                   world.seated()[seats.size()]);
    }
    seats.push_back({.rank = rank.rank,
                     .session = rank.session,
                     .pid = session->origin().pid,
                     .uid = session->origin().uid,
                     .member = {}});
  }
  return seats;
}

Result<std::optional<std::vector<MemberId>>> ControlRequests::form_communicator(
    const CommunicatorSpec& spec, std::unique_ptr<CommunicatorExtension>& made) {
  World world = World::of_one_node(std::max<std::size_t>(1, spec.ranks.size()));
  if (!spec.nodes.empty()) {
    Result<World> checked = state_.nodes.check(spec);
    if (!checked) return std::move(checked).error();
    world = std::move(checked).value();
  }
  Result<std::vector<Seat>> seats = take_seats(spec, world);
  if (!seats) return std::move(seats).error();
  const Result<bool> is_whole = state_.backend->form(spec, made);
  if (!is_whole) return is_whole.error();
  if (!*is_whole) return std::optional<std::vector<MemberId>>();
  std::vector<MemberId> members = state_.communicators.form(
      spec.unique_id, spec.epoch, std::move(world), std::move(seats).value());
  Communicator& communicator = *state_.communicators.find(members[0])->communicator;
  communicator.default_coding = spec.default_coding;
  communicator.policy = spec.policy;
  communicator.extension = std::move(made);
  state_.backend->adopt(communicator);
  if (communicator.spans_nodes()) {
    if (Status spans = state_.nodes.span(communicator, spec); !spans) {
      state_.communicators.dissolve(communicator);
      return std::move(spans).error();
    }
  }
  for (std::size_t i = 0; i < members.size(); ++i)
    state_.sessions.find(spec.ranks[i].session)->members.push_back(members[i]);
  state_.sessions.update_oversubscription();
  return std::optional(std::move(members));
}

void ControlRequests::abort_communicator(SessionId id, MemberId member_id, const std::string& why,
                                         Done<void> done) {
  worker_.catch_up();
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return done(std::move(session).error());
  if (departures_.join(id, member_id, done)) return;
  Result<Member*> member = state_.need_member(id, member_id);
  if (!member) return done(std::move(member).error());
  const Rank rank = (*member)->rank;
  const auto committed = state_.communicators.committed(member_id);
  std::erase((*session)->members, member_id);
  const Failure aborted = make_failure(ErrorCode::Aborted, Reason::RemoteAborted, rank,
                                       "rank %d aborted the communicator%s%s", rank,
                                       why.empty() ? "" : ": ", why.c_str());
  Communicator& communicator = *(*member)->communicator;
  state_.communicators.revoke(communicator, aborted);
  state_.backend->abort(communicator, rank);
  state_.communicators.drop(member_id, aborted);
  worker_.settle();
  state_.sessions.update_oversubscription();
  worker_.reap();
  departures_.add(id, member_id, committed, std::move(done));
}

void ControlRequests::leave_communicator(SessionId id, MemberId member_id, Done<void> done) {
  worker_.catch_up();
  Result<Session*> session = state_.sessions.need(id);
  if (!session) return done(std::move(session).error());
  if (departures_.join(id, member_id, done)) return;
  Result<Member*> member = state_.need_member(id, member_id);
  if (!member) return done(std::move(member).error());
  const auto committed = state_.communicators.committed(member_id);
  std::erase((*session)->members, member_id);
  state_.backend->leave(*(*member)->communicator, (*member)->rank);
  state_.communicators.leave(member_id);
  worker_.settle();
  state_.sessions.update_oversubscription();
  departures_.add(id, member_id, committed, std::move(done));
}

Result<CommunicatorSnapshot> ControlRequests::describe(SessionId session, MemberId id) const {
  Result<Member*> member = state_.need_member(session, id);
  if (!member) return std::move(member).error();
  return snapshot(*(*member)->communicator, now_ns());
}

Result<MailboxDescriptors> ControlRequests::export_mailbox(SessionId session, MemberId id) const {
  Result<Member*> member = state_.need_member(session, id);
  if (!member) return std::move(member).error();
  return state_.backend->export_mailbox(*(*member)->communicator, (*member)->rank);
}

Status ControlRequests::check_may_measure() const {
  if (!state_.admission.limits.draining) return {};
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon stops");
}

Status ControlRequests::begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes) {
  ARC_RETURN_IF_ERROR(check_may_measure());
  return state_.backend->begin_measuring(ranks, room_bytes);
}

Result<std::optional<std::uint64_t>> ControlRequests::prepare_measuring() {
  ARC_RETURN_IF_ERROR(check_may_measure());
  return state_.backend->prepare_measuring();
}

void ControlRequests::measure(GpuMeasurement what, const DeviceWorker::Done<double>& done) {
  Status begun = check_may_measure();
  if (begun) begun = state_.backend->measure(what);
  if (!begun) return done(std::move(begun).error());
  measuring_ = done;
}

void ControlRequests::measure_flag(std::uint32_t gpu, const DeviceWorker::Done<FlagEcho>& done) {
  Status begun = check_may_measure();
  if (begun && flag_measuring_)
    begun = error(ErrorCode::Unavailable, Reason::None, "somebody else measures: try again");
  if (begun) begun = state_.backend->begin_flag_echo(gpu);
  if (!begun) return done(std::move(begun).error());
  flag_measuring_ = done;
}

template <typename T, typename Look>
bool ControlRequests::go_on(DeviceWorker::Done<T>& waits, Look look) {
  if (!waits) return false;
  Result<std::optional<T>> took = std::optional<T>();
  if (Status may = check_may_measure(); may) {
    took = look();
  } else {
    took = std::move(may).error();
  }
  if (took && !*took) return true;
  const auto done = std::exchange(waits, nullptr);
  done(took ? Result<T>(**took) : Result<T>(std::move(took).error()));
  return true;
}

bool ControlRequests::go_on_measuring() {
  const bool is_measured = go_on(measuring_, [this] { return state_.backend->measured(); });
  return go_on(flag_measuring_, [this] { return state_.backend->flag_echo(); }) || is_measured;
}

void ControlRequests::stop_measuring(const Error& why) {
  if (const auto done = std::exchange(measuring_, nullptr)) done(why);
  if (const auto done = std::exchange(flag_measuring_, nullptr)) done(why);
}

CommunicatorSnapshot ControlRequests::snapshot(const Communicator& communicator,
                                               std::uint64_t now_ns) const {
  CommunicatorSnapshot shot = snapshot_of(communicator, now_ns);
  state_.backend->describe(communicator, shot);
  return shot;
}

WorkerSnapshot ControlRequests::inspect() {
  // What a client has seen to end has been counted when anybody asks.
  worker_.catch_up();
  worker_.reap();
  const std::uint64_t now = now_ns();
  WorkerSnapshot shot;
  shot.device = state_.parts.device;
  shot.operations_done = state_.completions.done() + state_.backend->operations_elsewhere();
  shot.operations_failed = state_.completions.failed();
  shot.bytes_reduced = state_.completions.bytes_reduced();
  shot.operations_pending = state_.pending();
  shot.busy_fraction = busy_fraction_;
  for (const Session* session : state_.sessions.all())
    shot.sessions.push_back(snapshot_of(*session, now));
  state_.communicators.for_each([&](const Communicator& communicator) {
    shot.communicators.push_back(snapshot(communicator, now));
  });
  shot.links = state_.nodes.link_snapshots();
  state_.nodes.count_dropped();  // control asks each second while there is a link
  return shot;
}

void ControlRequests::use_settings(std::shared_ptr<const Settings> settings) {
  AdmissionLimits& limits = state_.admission.limits;
  limits = AdmissionLimits::from(*settings, limits.draining);
  limits.doorbells_only = state_.backend->starts_by_doorbell();
  state_.backend->use_settings(*settings);
  state_.parts.settings = std::move(settings);
}

void ControlRequests::drain(std::uint64_t deadline_ns, Done<void> done) {
  worker_.catch_up();
  state_.backend->begin_drain();
  state_.admission.limits.draining = true;
  for (Session* session : state_.sessions.all()) {
    if (session->readable())
      session->set_state(ring::SessionState::ShuttingDown, Reason::ShuttingDown);
  }
  departures_.add_drain(deadline_ns, std::move(done));
  worker_.reap();
}

}  // namespace arcomm
