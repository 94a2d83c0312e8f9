#include "client/src/gpu/gpu_plans.h"

#include <algorithm>

namespace arcomm::client {
namespace {

// Of plans that no graph and no caller holds. The daemon has kMaxDevicePlans for everyone.
constexpr std::size_t kMostPlans = 4096;
constexpr std::size_t kDroppedAtOnce = 64;

GpuPlanKey key_of(const GpuPlans::Wanted& wanted) {
  const CollectiveCall& call = wanted.call;
  // Where nothing is moved, no address counts.
  const bool is_empty = call.is_empty();
  return {.send = is_empty ? 0 : reinterpret_cast<std::uintptr_t>(call.send),
          .recv = is_empty ? 0 : reinterpret_cast<std::uintptr_t>(call.recv),
          .spec = call,
          .send_buffer = wanted.send.id,
          .recv_buffer = wanted.recv.id};
}

NewPlan request_of(const GpuPlans::Wanted& wanted, MemberId member) {
  const CollectiveCall& call = wanted.call;
  const bool is_empty = call.is_empty();
  return {.member = member,
          .send_buffer = wanted.send.id,
          .send_offset_bytes = is_empty ? 0 : wanted.send.offset_of(call.send),
          .recv_buffer = wanted.recv.id,
          .recv_offset_bytes = is_empty ? 0 : wanted.recv.offset_of(call.recv),
          .spec = call,
          .timeout_ms = wanted.timeout_ms};
}

// Where the buffer is on both sides, both must be there: half an operation is none.
bool is_on_memory_there(const GpuPlanKey& key, BufferId buffer, const IsThere& is_there) {
  return (key.send_buffer != buffer || is_there(key.send, key.spec.send_bytes())) &&
         (key.recv_buffer != buffer || is_there(key.recv, key.spec.recv_bytes()));
}

// A plan ends with its epoch, too.
bool plan_is_gone(const Error& why) {
  return is_gone(why) || why.reason == Reason::Revoked;
}

}  // namespace

Result<GpuPlan*> GpuPlans::get(const Wanted& wanted, Deadline deadline) {
  const GpuPlanKey key = key_of(wanted);
  // Another timeout makes another plan; callers change theirs hardly ever.
  if (GpuPlan* plan = plans_.find(key)) {
    if (!plan->may_be_gone) return plan;
    // A start rings with the bare index, which may be another plan's by now.
    ARC_RETURN_IF_ERROR(drop(*plan, deadline));
  }
  ARC_RETURN_IF_ERROR(make_room(deadline));
  NewPlan request = request_of(wanted, member_);
  // As many as there are: calls to the daemon become rare, and what lies unused is bounded.
  request.ahead = static_cast<std::uint32_t>(plans_.size());
  Result<PlanId> id = daemon_.create_plan(request, deadline);
  if (!id && id.error().code == ErrorCode::ResourceExhausted) {
    // Someone needs the room more than our oldest plans do.
    const Result<bool> dropped = drop_oldest(deadline);
    if (dropped && *dropped) id = daemon_.create_plan(request, deadline);
  }
  if (!id) return std::move(id).error();
  if (id->index >= kMaxDevicePlans) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon numbers its plans up to ",
                 id->index, ": are client and daemon of one version?");
  }
  return &plans_.insert(
      {.key = key, .id = *id, .path = wanted.path, .timeout_ns = wanted.timeout_ms * 1'000'000});
}

Status GpuPlans::make_room(Deadline deadline) {
  if (plans_.size() < kMostPlans || plans_.oldest(kMostPlans).size() < kMostPlans) return {};
  const Result<bool> dropped = drop_oldest(deadline);
  if (!dropped) return dropped.error();
  if (*dropped) return {};
  return error(ErrorCode::ResourceExhausted, Reason::Quota, "this communicator has ", plans_.size(),
               " plans (combinations of buffers and counts) in use at a time: synchronize its "
               "streams now and then, or reuse buffers");
}

// True when at least one is gone.
Result<bool> GpuPlans::drop_oldest(Deadline deadline) {
  const Result<PostedStarts::Progress> now = starts_.progress();
  if (!now) return now.error();
  bool any = false;
  for (GpuPlan* plan : plans_.oldest(kDroppedAtOnce)) {
    if (!now->has_ended(*plan)) continue;
    ARC_RETURN_IF_ERROR(drop(*plan, daemon_.replace_plan(plan->id, deadline)));
    any = true;
  }
  return any;
}

bool GpuPlans::nobody_needs(BufferId buffer, const IsThere& is_there) {
  std::vector<const GpuPlan*> asked;
  for (const GpuPlan* plan : plans_.users_of(buffer)) {
    if (!is_on_memory_there(plan->key, buffer, is_there)) continue;
    if (!plan->may_go()) return false;
    if (starts_.any_of(*plan)) asked.push_back(plan);
  }
  if (asked.empty()) return true;
  const Result<PostedStarts::Progress> now = starts_.progress();
  return now && std::ranges::all_of(asked, [&](const auto* plan) { return now->has_ended(*plan); });
}

Status GpuPlans::drop_those_on(BufferId buffer, Deadline deadline) {
  return drop(plans_.users_of(buffer), deadline);
}

Status GpuPlans::drop_all(Deadline deadline) {
  return drop(plans_.all(), deadline);
}

Status GpuPlans::drop(const std::vector<GpuPlan*>& plans, Deadline deadline) {
  for (GpuPlan* plan : plans) ARC_RETURN_IF_ERROR(drop(*plan, deadline));
  return {};
}

Status GpuPlans::drop(GpuPlan& plan, Status gone) {
  if (!gone && !plan_is_gone(gone.error())) {
    const ErrorCode code = gone.error().code;
    plan.may_be_gone |= code == ErrorCode::DeadlineExceeded || code == ErrorCode::Unavailable;
    return gone;
  }
  plans_.erase(plan);
  return {};
}

}  // namespace arcomm::client
