#include "client/src/host/plan.h"

#include <utility>

#include "client/src/gpu/gpu_all_reduce.h"
#include "client/src/gpu/gpu_member.h"
#include "client/src/host/memory/operation_memory.h"
#include "client/src/host/ticket_table.h"
#include "client/src/session/library.h"

namespace arcomm::client {
namespace {

Error rebuilt() {
  return error(ErrorCode::FailedPrecondition, Reason::Revoked,
               "the plan's communicator was rebuilt: create the plan again");
}

}  // namespace

PlanTable& plans() {
  static auto* table = new PlanTable;  // never destroyed: threads may outlive main
  return *table;
}

Result<std::shared_ptr<Plan>> Plan::create(std::shared_ptr<Communicator> communicator,
                                           const CollectiveCall& call) {
  const Deadline deadline = Library::instance().control_deadline();
  std::shared_ptr<Member> member = communicator->member();
  Session& session = *member->session;
  session.submission().check();
  if (session.lost()) return session.submission().loss();
  std::shared_ptr<Plan> plan(new Plan(std::move(communicator), std::move(member), call));
  if (plan->is_on_gpu()) {
    const Member& own = *plan->member_;
    plan->timeout_ = std::chrono::milliseconds(Library::instance().timeout_ms());
    if (!own.gpu->launch_of(call).needs_daemon()) {
      ARC_RETURN_IF_ERROR(own.gpu->check_in_stream(call));
      return plan;
    }
    Result<GpuPlanKey> key = with_second_attempt([&]() -> Result<GpuPlanKey> {
      if (session.lost()) return session.submission().loss();
      const Result<GpuOperands> operands = find_operands(own, call, deadline);
      if (!operands) return operands.error();
      plan->in_chunks_ = operands->send.in_chunks || operands->recv.in_chunks;
      return own.gpu->hold(call, operands->send, operands->recv, Library::instance().timeout_ms(),
                           deadline);
    });
    if (!key) return std::move(key).error();
    plan->gpu_key_ = *key;
    return plan;
  }
  const bool one_request =
      cut(call.send_count, call.element_bytes(), plan->member_->segment_limit_bytes).segments == 1;
  if (call.is_empty() || !one_request) return plan;

  Result<SharedRange> send = find_shared(call.send, call.send_bytes(), session, deadline);
  if (!send) return std::move(send).error();
  plan->send_ = std::move(*send);
  Result<SharedRange> recv = find_shared(call.recv, call.recv_bytes(), session, deadline);
  if (!recv) return std::move(recv).error();
  plan->recv_ = std::move(*recv);
  if (!plan->send_.buffer || !plan->recv_.buffer) return plan;

  Result<PlanId> id =
      session.control().create_plan(session.key(),
                                    {.member = plan->member_->id,
                                     .send_buffer = plan->send_.id,
                                     .send_offset_bytes = plan->send_.offset_bytes,
                                     .recv_buffer = plan->recv_.id,
                                     .recv_offset_bytes = plan->recv_.offset_bytes,
                                     .spec = call,
                                     .timeout_ms = Library::instance().timeout_ms()},
                                    deadline);
  if (!id) return std::move(id).error();
  plan->id_ = *id;
  return plan;
}

Plan::~Plan() {
  if (gpu_key_) member_->gpu->let_go(*gpu_key_);
  if (send_.buffer) send_.buffer->end_use();
  if (recv_.buffer) recv_.buffer->end_use();
}

Status Plan::start_on_gpu(void* stream, Deadline deadline) {
  Session& session = *member_->session;
  session.check_now_and_then();
  if (session.lost()) return session.submission().loss();
  if (communicator_->member() != member_) return rebuilt();
  if (!gpu_key_) return all_reduce_on_gpu(member_, call_, stream, timeout_);
  if (in_chunks_) {
    const Result<GpuOperands> now = find_operands(*member_, call_, deadline);
    if (!now) return now.error();
    if (now->send.id != gpu_key_->send_buffer || now->recv.id != gpu_key_->recv_buffer) {
      return error(ErrorCode::FailedPrecondition, Reason::UnknownHandle,
                   "other memory is mapped where the plan's was: create the plan again");
    }
  }
  return member_->gpu->start(*gpu_key_, stream, deadline);
}

Result<Operation*> Plan::prepare_start(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (ticket_ != 0 || preparing_) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                 "the plan was started and not waited for: call arcPlanWait first");
  }
  if (communicator_->member() != member_) {
    return rebuilt();
  }
  preparing_ = true;
  // Preparing may last until the deadline; a thread that waits for the plan must not.
  lock.unlock();
  Result<Operation*> operation = prepare(member_, call_, id_, deadline);
  lock.lock();
  preparing_ = false;
  if (operation) ticket_ = (*operation)->ticket.load(std::memory_order_relaxed);
  return operation;
}

Status Plan::wait(std::uint64_t timeout_ms) {
  if (is_on_gpu()) {
    return error(
        ErrorCode::Unimplemented, Reason::Unsupported,
        "a plan on a GPU is not waited for: synchronize the stream that it was started on, "
        "and ask arcCommGetAsyncError");
  }
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ticket_;
  }
  if (ticket == 0) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                 "the plan is not started: call arcPlanStart first");
  }
  Status status = wait_ticket(ticket, timeout_ms);
  const std::lock_guard lock(mutex_);
  if (ticket_ == ticket && tickets().find(ticket) == nullptr) ticket_ = 0;
  return status;
}

Status Plan::destroy() {
  {
    const std::lock_guard lock(mutex_);
    if (ticket_ != 0 || preparing_) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                   "the plan was started and not waited for: call arcPlanWait first");
    }
  }
  Session& session = *member_->session;
  if (!id_.valid() || session.lost()) return {};
  Status gone =
      session.control().destroy_plan(session.key(), id_, Library::instance().control_deadline());
  // A communicator that ended took its plans along.
  if (!gone && gone.error().code == ErrorCode::NotFound) return {};
  if (!gone && gone.error().reason == Reason::DaemonLost) return {};
  return gone;
}

}  // namespace arcomm::client
