#include "daemon/exec/worker/session_plans.h"

#include <memory>
#include <utility>
#include <vector>

#include "proto/ring/decode.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kOfATurnNs = 200'000;  // as control's messages have

Error unknown(PlanId plan) {
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "plan ", plan,
               " is unknown, destroyed or of another session");
}

}  // namespace

const PersistentPlan* SessionPlans::find(const Session& session, PlanId plan) const {
  const PersistentPlan* held = state_.plans.find(plan);
  return held != nullptr && held->owner == session.id() ? held : nullptr;
}

Result<PlanId> SessionPlans::add(Session& session, const PlanSpec& spec) {
  const SessionId id = session.id();
  Result<Member*> member = state_.need_member(id, spec.member);
  if (!member) return std::move(member).error();
  if (const char* fault = find_fault(spec.spec))
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the plan cannot be: ", fault);
  auto plan = std::make_unique<PersistentPlan>();
  plan->owner = id;
  plan->member = spec.member;
  plan->signature = Signature::whole(spec.spec);
  plan->timeout_ns = spec.timeout_ns;
  Failure failure = state_.admission.check_codec(**member, plan->signature);
  if (!failure.ok()) return failure.to_error();
  CheckedRange send, recv;
  failure =
      state_.admission.check_ranges(id, plan->signature, {spec.send_buffer, spec.send_offset_bytes},
                                    {spec.recv_buffer, spec.recv_offset_bytes}, send, recv);
  if (!failure.ok()) return failure.to_error();
  if (send.buffer != nullptr) plan->send_buffer = spec.send_buffer;
  if (recv.buffer != nullptr) plan->recv_buffer = spec.recv_buffer;
  plan->send = send.address;
  plan->recv = recv.address;
  ARC_RETURN_IF_ERROR(state_.backend->bind(state_.plans.next_id(), *plan, send, recv));
  if (plan->send_buffer.valid()) state_.buffers.hold(plan->send_buffer);
  if (plan->recv_buffer.valid()) state_.buffers.hold(plan->recv_buffer);
  const PlanId made = state_.plans.insert(std::move(plan));
  session.plans.push_back(made);
  return made;
}

Status SessionPlans::remove(Session& session, PlanId plan) {
  catch_up_();
  const PersistentPlan* held = find(session, plan);
  if (held == nullptr) return unknown(plan);
  ARC_RETURN_IF_ERROR(state_.backend->unbind(plan, *held));
  if (held->send_buffer.valid()) state_.buffers.drop(held->send_buffer);
  if (held->recv_buffer.valid()) state_.buffers.drop(held->recv_buffer);
  state_.plans.erase(plan);
  std::erase(session.plans, plan);
  return {};
}

Result<PlanId> SessionPlans::answer(Session& session, const ring::WorkRequest& slot) {
  if (until_ns_ == 0) until_ns_ = now_ns() + kOfATurnNs;
  ring::PlanRequest request;
  const char* detail = "";
  if (ring::decode(slot, request, detail) != ring::Decode::Done)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the plan cannot be: ", detail);
  if (request.removed.valid()) {
    ARC_RETURN_IF_ERROR(remove_in_ring(session, request.removed));
    return request.removed;
  }
  return make_in_ring(session, {.member = request.member,
                                .send_buffer = request.send.buffer,
                                .recv_buffer = request.recv.buffer,
                                .send_offset_bytes = request.send.offset_bytes,
                                .recv_offset_bytes = request.recv.offset_bytes,
                                .spec = request.spec,
                                .timeout_ns = request.timeout_ns});
}

Result<PlanId> SessionPlans::make_in_ring(Session& session, const PlanSpec& spec) {
  if (state_.admission.limits.draining)
    return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon is shutting down");
  if (session.plans.size() >= session.paid_plans) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "the session has ",
                 session.plans.size(), " plans, all that it was charged for: call CreatePlan");
  }
  return add(session, spec);
}

Status SessionPlans::remove_in_ring(Session& session, PlanId plan) {
  const PersistentPlan* held = find(session, plan);
  if (held == nullptr) return unknown(plan);
  if (held->resident_on >= 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "plan ", plan,
                 " is in a GPU's grid: call DestroyPlan");
  }
  return remove(session, plan);
}

}  // namespace arcomm
