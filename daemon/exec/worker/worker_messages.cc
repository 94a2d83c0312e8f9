// Control's messages to a worker: the rare calls, answered between two turns of its loop.
#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

Session* Worker::find(SessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Result<Session*> Worker::need(SessionId id) const {
  if (Session* session = find(id)) return session;
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "session ", id,
               " is unknown to this device or closed");
}

Result<Member*> Worker::need_member(SessionId session, MemberId id) const {
  if (Member* member = admission_.find_member(session, id)) return member;
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "communicator ", id,
               " is unknown, freed or of another session");
}

int Worker::doorbell_of(SessionId id) const {
  const Session* session = find(id);
  return session == nullptr ? -1 : session->doorbell_fd();
}

std::shared_ptr<Tenant> Worker::tenant_of(uid_t uid) {
  std::erase_if(tenants_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<Tenant>& known = tenants_[uid];
  std::shared_ptr<Tenant> tenant = known.lock();
  if (tenant == nullptr) known = tenant = std::make_shared<Tenant>();
  return tenant;
}

Status Worker::open_session(SessionSpec seed, std::uint64_t now_ns) {
  if (find(seed.id) != nullptr) {
    return error(ErrorCode::AlreadyExists, Reason::Bug, "session ", seed.id, " is open already");
  }
  const std::uint32_t max_in_flight = std::min(seed.limits.max_in_flight, seed.segment.slots());
  auto session =
      std::make_unique<Session>(SessionOrigin{seed.id, seed.peer.pid, seed.peer.uid, seed.peer.gid,
                                              std::move(seed.process_name)},
                                std::move(seed.segment), std::move(seed.doorbell), max_in_flight,
                                tenant_of(seed.peer.uid), now_ns);
  if (admission_.limits.draining)
    session->set_state(ring::SessionState::ShuttingDown, Reason::ShuttingDown);
  polled_.push_back(session.get());
  sessions_.emplace(seed.id, std::move(session));
  update_oversubscription();
  return {};
}

void Worker::close_session(SessionId id, Reason reason, const std::string& why, Done<void> done) {
  catch_up();
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return done(need(id).error());
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  std::erase(polled_, session.get());
  // What was answered stays answered; what is still unread in the ring was never accepted.
  const bool orderly = reason == Reason::None;
  if (session->readable()) session->set_state(ring::SessionState::Closed, reason);
  drop_members(*session, orderly ? Reason::RemoteAborted : reason, why);
  settle();
  update_oversubscription();
  leaving_.push_back({std::move(session), std::move(done)});
  reap();
}

Result<BufferId> Worker::add_buffer(SessionId id, BufferSpec seed) {
  Result<Session*> session = need(id);
  if (!session) return std::move(session).error();
  if (gpus_ != nullptr) return add_gpu_buffer(**session, seed);
  Result<BufferId> buffer =
      buffers_.add(id, std::move(seed.memory), seed.offset_bytes, seed.length_bytes);
  if (!buffer) return buffer;
  (*session)->buffers.push_back(*buffer);
  (*session)->registered_bytes += seed.length_bytes;
  return buffer;
}

Status Worker::remove_buffer(SessionId id, BufferId buffer) {
  catch_up();
  Result<Session*> session = need(id);
  if (!session) return std::move(session).error();
  const Buffer* held = buffers_.find(id, buffer);
  const std::uint64_t length = held == nullptr ? 0 : held->length_bytes();
  Result<RemovedBuffer> removed = buffers_.remove(id, buffer);
  if (!removed) return std::move(removed).error();
  let_go(std::move(removed).value());
  std::erase((*session)->buffers, buffer);
  (*session)->registered_bytes -= length;
  return {};
}

Result<PlanId> Worker::add_plan(SessionId id, const PlanSpec& seed) {
  Result<Session*> session = need(id);
  if (!session) return std::move(session).error();
  if (Result<Member*> member = need_member(id, seed.member); !member)
    return std::move(member).error();
  if (const char* fault = find_fault(seed.spec))
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the plan cannot be: ", fault);
  auto plan = std::make_unique<PersistentPlan>();
  plan->owner = id;
  plan->member = seed.member;
  plan->signature = Signature::whole(seed.spec);
  plan->timeout_ns = seed.timeout_ns;
  CheckedRange send, recv;
  const Failure failure =
      admission_.check_ranges(id, plan->signature, {seed.send_buffer, seed.send_offset_bytes},
                              {seed.recv_buffer, seed.recv_offset_bytes}, send, recv);
  if (!failure.ok()) return failure.to_error();
  if (gpus_ != nullptr) ARC_RETURN_IF_ERROR(check_gpu_plan(*plan, send, recv));
  if (send.buffer != nullptr) plan->send_buffer = seed.send_buffer;
  if (recv.buffer != nullptr) plan->recv_buffer = seed.recv_buffer;
  plan->send = send.address;
  plan->recv = recv.address;
  if (gpus_ != nullptr) ARC_RETURN_IF_ERROR(bind_to_gpu(plans_.next_id(), *plan));
  if (plan->send_buffer.valid()) buffers_.hold(plan->send_buffer);
  if (plan->recv_buffer.valid()) buffers_.hold(plan->recv_buffer);
  const PlanId made = plans_.insert(std::move(plan));
  (*session)->plans.push_back(made);
  return made;
}

Status Worker::remove_plan(SessionId id, PlanId plan) {
  catch_up();
  Result<Session*> session = need(id);
  if (!session) return std::move(session).error();
  const PersistentPlan* held = plans_.find(plan);
  if (held == nullptr || held->owner != id) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "plan ", plan,
                 " is unknown, destroyed or of another session");
  }
  ARC_RETURN_IF_ERROR(unbind_from_gpu(plan, *held));
  if (held->send_buffer.valid()) buffers_.drop(held->send_buffer);
  if (held->recv_buffer.valid()) buffers_.drop(held->recv_buffer);
  plans_.erase(plan);
  std::erase((*session)->plans, plan);
  return {};
}

Result<std::vector<MemberId>> Worker::form_communicator(const CommunicatorSpec& seed) {
  if (seed.ranks.empty() || seed.ranks.size() > static_cast<std::size_t>(kMaxRanks)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a communicator has 1 to ",
                 kMaxRanks, " ranks, not ", seed.ranks.size());
  }
  std::vector<Seat> seats;
  for (const RankSpec& rank : seed.ranks) {
    const Session* session = find(rank.session);
    // A session may die while its communicator gathers: the others must not be left with a hole.
    if (session == nullptr || !session->readable()) {
      Error gone = error(ErrorCode::Aborted, Reason::RemoteDied, "rank ", rank.rank, "'s session ",
                         rank.session, " ended while the communicator was being formed");
      gone.rank = rank.rank;
      return gone;
    }
    if (rank.rank != static_cast<Rank>(seats.size())) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue,
                   "ranks must be complete and sorted: found ", rank.rank, " in place of ",
                   seats.size());
    }
    seats.push_back(
        {.rank = rank.rank, .session = rank.session, .pid = session->origin().pid, .member = {}});
  }
  std::unique_ptr<GpuGroup> group;
  if (gpus_ != nullptr) {
    bench_.reset();  // clients come first
    const auto ranks = static_cast<std::uint32_t>(seed.ranks.size());
    Result<std::unique_ptr<GpuGroup>> made =
        gpus_->make_group(seed, gpu_executor_->most_in_stream_bytes(ranks));
    if (!made) return std::move(made).error();
    group = std::move(made).value();
  }
  std::vector<MemberId> members = communicators_.form(seed.unique_id, seed.epoch, std::move(seats));
  if (group != nullptr)
    gpus_->adopt(*communicators_.find(members[0])->communicator, members, std::move(group));
  for (std::size_t i = 0; i < members.size(); ++i)
    find(seed.ranks[i].session)->members.push_back(members[i]);
  update_oversubscription();
  return members;
}

void Worker::abort_communicator(SessionId id, MemberId member_id, const std::string& why,
                                Done<void> done) {
  catch_up();
  Result<Session*> session = need(id);
  if (!session) return done(std::move(session).error());
  if (join_parting(id, member_id, done)) return;
  Result<Member*> member = need_member(id, member_id);
  if (!member) return done(std::move(member).error());
  const Rank rank = (*member)->rank;
  const auto committed = communicators_.committed(member_id);
  std::erase((*session)->members, member_id);
  const Failure aborted = make_failure(ErrorCode::Aborted, Reason::RemoteAborted, rank,
                                       "rank %d aborted the communicator%s%s", rank,
                                       why.empty() ? "" : ": ", why.c_str());
  if (gpus_ != nullptr) {
    communicators_.revoke(*(*member)->communicator, aborted);
    retire_from_gpu(*(*member)->communicator, rank);
  }
  communicators_.drop(member_id, aborted);
  settle();
  update_oversubscription();
  reap();
  answer_when_ended({id, member_id, committed, std::move(done)});
}

void Worker::leave_communicator(SessionId id, MemberId member_id, Done<void> done) {
  catch_up();
  Result<Session*> session = need(id);
  if (!session) return done(std::move(session).error());
  if (join_parting(id, member_id, done)) return;
  Result<Member*> member = need_member(id, member_id);
  if (!member) return done(std::move(member).error());
  const auto committed = communicators_.committed(member_id);
  std::erase((*session)->members, member_id);
  if (gpus_ != nullptr) leave_gpu(*(*member)->communicator, (*member)->rank);
  communicators_.leave(member_id);
  settle();
  update_oversubscription();
  answer_when_ended({id, member_id, committed, std::move(done)});
}

void Worker::use_settings(std::shared_ptr<const Settings> settings) {
  const bool draining = admission_.limits.draining;
  admission_.limits = AdmissionLimits::from(*settings, draining);
  admission_.limits.doorbells_only = gpus_ != nullptr;
  if (gpus_ != nullptr) {
    gpus_->use_settings(*settings);
    gpu_executor_->use_settings(*settings);
  }
  parts_.settings = std::move(settings);
}

void Worker::drain(std::uint64_t deadline_ns, Done<void> done) {
  catch_up();
  if (gpus_ != nullptr) gpus_->stop_speculating();
  admission_.limits.draining = true;
  for (Session* session : polled_) {
    if (session->readable())
      session->set_state(ring::SessionState::ShuttingDown, Reason::ShuttingDown);
  }
  draining_.push_back({deadline_ns, std::move(done)});
  reap();
}

void Worker::shut_down() {
  if (executor_ == nullptr && gpu_executor_ == nullptr) return;  // it was never complete
  communicators_.revoke_all(make_failure(ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank,
                                         "the daemon stopped before the operation ended"));
  gpus_ ? gpu_executor_->drain() : executor_->drain();
  settle();
  for (Session* session : std::exchange(polled_, {})) {
    if (session->readable()) session->set_state(ring::SessionState::Closed, Reason::ShuttingDown);
  }
  reap();
  for (auto& [id, session] : sessions_) release(*session);
  sessions_.clear();
  bench_.reset();
  if (gpus_ != nullptr) gpus_->shut_down();
}

}  // namespace arcomm
