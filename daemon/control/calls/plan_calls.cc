#include "daemon/control/calls/plan_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint32_t kMostAhead = 256;  // of one call

// Nothing where a number does not fit into the place that it is for.
std::optional<OperationSpec> spec_of(const v1::CreatePlanRequest& request) {
  const auto fits = [](std::uint32_t number) { return number <= 0xff; };
  if (!fits(request.collective()) || !fits(request.dtype()) || !fits(request.op()) ||
      !fits(request.codec()) || request.root_plus_one() > 0x7fff'ffff)
    return std::nullopt;
  return OperationSpec{
      .send_count = request.send_count(),
      .recv_count = request.recv_count(),
      .collective = static_cast<Collective>(request.collective()),
      .dtype = static_cast<DType>(request.dtype()),
      .op = static_cast<ReduceOp>(request.op()),
      .codec = static_cast<Codec>(request.codec()),
      .codec_origin = request.of_error_class() ? CodecOrigin::ErrorClass : CodecOrigin::Named,
      .root = static_cast<Rank>(request.root_plus_one()) - 1};
}

}  // namespace

void PlanCalls::create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                            Answer<v1::CreatePlanReply> answer) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  const std::optional<OperationSpec> operation = spec_of(request);
  if (const char* fault = operation ? find_fault(*operation) : "a number is out of range") {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, fault, ": collective ",
                        request.collective(), ", dtype ", request.dtype(), ", op ", request.op(),
                        ", codec ", request.codec(), ", send count ", request.send_count(),
                        ", recv count ", request.recv_count(), ", root ",
                        std::int64_t{request.root_plus_one()} - 1));
  }
  Result<ChargePtr> charged = state_.quotas.charge(caller.peer.uid, QuotaKind::Plans);
  if (!charged) return answer(charged.error());
  Result<ChargePtr> on_gpus =
      state_.quotas.charge(caller.peer.uid, QuotaKind::DevicePlans, (*session)->on_gpus ? 1 : 0);
  if (!on_gpus) {
    charged->reset();
    return answer(on_gpus.error());
  }
  const std::uint64_t timeout_ms =
      std::min(request.timeout_ms(), state_.settings->op.max_timeout_ms);
  const PlanSpec spec{.member = MemberId::from_bits(request.member()),
                      .send_buffer = BufferId::from_bits(request.send_buffer()),
                      .recv_buffer = BufferId::from_bits(request.recv_buffer()),
                      .send_offset_bytes = request.send_offset_bytes(),
                      .recv_offset_bytes = request.recv_offset_bytes(),
                      .spec = *operation,
                      .timeout_ns = timeout_ms * 1'000'000};
  const SessionId id = (*session)->id;
  // Until the worker has answered, in time or late.
  const auto held = std::make_shared<HeldPlan>(
      HeldPlan{.charge = std::move(charged).value(), .on_gpus = std::move(on_gpus).value()});
  state_.worker_of(**session).add_plan(
      id, spec,
      state_.replies.on_loop<PlanId>(
          "register the plan",
          [this, id, ahead = request.ahead(), answer = std::move(answer),
           held](const Result<PlanId>& plan) {
            if (!plan) return answer(plan.error());
            if (SessionEntry* owner = state_.ledger.find(id)) {
              owner->plans.push_back(std::move(*held));
              pay_ahead(*owner, ahead);
            }
            v1::CreatePlanReply reply;
            reply.set_plan(plan->bits());
            answer(reply);
          },
          // It takes up what it was charged for all the same, and its session may have removed it
          // in the ring by then and made another one in its place: so it is the session's first,
          // and its charge comes back with it or not at all.
          [this, worker = &state_.worker_of(**session), id, held](const Result<PlanId>& late) {
            if (!late) return;
            if (SessionEntry* owner = state_.ledger.find(id))
              owner->plans.push_back(std::move(*held));
            remove(*worker, id, *late, [held](const Status&) {});
          }));
}

void PlanCalls::destroy_plan(const Caller& caller, const v1::DestroyPlanRequest& request,
                             Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  remove(state_.worker_of(**session), (*session)->id, PlanId::from_bits(request.plan()),
         [answer = std::move(answer)](const Status& status) { answer(empty_or(status)); });
}

void PlanCalls::remove(DeviceWorker& worker, SessionId id, PlanId plan,
                       std::function<void(const Status&)> then) {
  worker.remove_plan(id, plan,
                     state_.replies.on_loop<void>(
                         "remove the plan",
                         [this, id, then = std::move(then)](const Status& status) {
                           if (status) give_back_one(id);
                           then(status);
                         },
                         [this, id](const Status& late) {
                           if (late) give_back_one(id);
                         }));
}

// The worker has let go of one, whichever it was: one charge is as good as another.
void PlanCalls::give_back_one(SessionId id) {
  SessionEntry* owner = state_.ledger.find(id);
  if (owner != nullptr && !owner->plans.empty()) owner->plans.pop_back();
}

void PlanCalls::pay_ahead(SessionEntry& session, std::uint32_t asked) {
  if (!session.on_gpus || state_.stopping) return;
  const uid_t uid = session.peer.uid;
  // Only what leaves as much again: nobody shall be short of what lies here unused.
  const auto may_have = [&](QuotaKind kind, std::uint64_t more) {
    return state_.quotas.shares(kind).ask(uid, 2 * more) == FairShare::Answer::Yes;
  };
  const std::uint64_t more = std::min(asked, kMostAhead);
  if (more == 0 || !may_have(QuotaKind::Plans, more) || !may_have(QuotaKind::DevicePlans, more))
    return;
  std::uint64_t paid = 0;
  for (; paid < more; ++paid) {
    Result<ChargePtr> charge = state_.quotas.charge(uid, QuotaKind::Plans);
    Result<ChargePtr> on_gpus = state_.quotas.charge(uid, QuotaKind::DevicePlans);
    if (!charge || !on_gpus) break;
    session.plans.push_back({std::move(charge).value(), std::move(on_gpus).value()});
  }
  state_.worker_of(session).pay_plans(session.id, paid);
}

void PlanCalls::take_back(const Caller& caller, const v1::SessionRef& session,
                          const v1::CreatePlanReply& unheard) {
  if (const Result<SessionEntry*> owner = state_.authorize(caller, session))
    take_back(**owner, PlanId::from_bits(unheard.plan()));
}

void PlanCalls::take_back(const SessionEntry& session, PlanId unheard) {
  remove(state_.worker_of(session), session.id, unheard, [](const Status&) {});
}

}  // namespace arcomm
