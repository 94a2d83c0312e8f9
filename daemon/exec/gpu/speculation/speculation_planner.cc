#include "daemon/exec/gpu/speculation/speculation_planner.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/gpu_steps.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Preparing stops the grids of all: of one communicator so often.
constexpr BucketRate kPreparing{.interval_ns = 50'000'000, .burst = 64};

}  // namespace

LaunchGate gate_of(const Arrival& arrival, std::size_t ranks) {
  LaunchGate gate{.number = static_cast<std::uint32_t>(arrival.operations[0]->ticket),
                  .plans = {.identity = arrival.identity}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Operation& operation = *arrival.operations[rank];
    gate.plans[rank] = operation.plan;
    if (static_cast<std::uint32_t>(operation.ticket) != gate.number) gate.number = 0;
  }
  return gate;
}

Status SpeculationPlanner::speculate_after(const Communicator& communicator,
                                           const Arrival& arrival) {
  GpuGroup& group = *gpus_of(communicator);
  const LaunchGate called = gate_of(arrival, group.members.size());
  group.prediction.observe(called.plans);
  if (group.paused_launches != 0) {
    --group.paused_launches;
    return {};
  }
  const std::vector<SpeculativeLaunch>& launched = group.speculation.launched;
  // What is on the board already and was not launched speculatively comes first.
  if (called.number == 0 || communicator.board.size() > launched.size() + 1) return {};
  while (communicator.ended.ok() && groups_.speculator.may_speculate(group)) {
    const LaunchGate& last = launched.empty() ? called : launched.back().gate;
    const PlanTuple* next = group.prediction.after(last.plans);
    const LaunchGate gate{.number = last.number + 1,
                          .plans = next == nullptr ? PlanTuple{} : *next};
    if (next == nullptr || gate.number == 0) return {};
    const Result<Next> done = speculate(group, gate);
    if (!done) return done.error();
    if (*done == Next::None) return {};
  }
  return {};
}

bool SpeculationPlanner::find_request(const GpuGroup& group, const LaunchGate& gate,
                                      GpuRequest& request) const {
  request.timeout_ns = ~std::uint64_t{0};
  for (const GpuMember& member : group.members) {
    const auto rank = static_cast<std::size_t>(member.rank);
    const PersistentPlan* plan = plans_.find(gate.plans[rank]);
    if (plan == nullptr || plan->owner != member.session || plan->member != member.id ||
        plan->signature.is_empty() || (rank != 0 && plan->signature != request.signature))
      return false;
    request.signature = plan->signature;
    request.timeout_ns = std::min(request.timeout_ns, plan->timeout_ns);
    request.parts[rank] = {plan->owner, plan->send_buffer, plan->recv_buffer,
                           plan->send,  plan->recv,        gate.number};
  }
  return true;
}

Result<SpeculationPlanner::Next> SpeculationPlanner::speculate(GpuGroup& group,
                                                               const LaunchGate& gate) {
  GpuRequest request;
  if (!find_request(group, gate, request)) return Next::None;
  const auto ranks = static_cast<std::uint32_t>(group.members.size());
  const Plan plan = plan_of(group, request.signature);
  const auto* step = std::get_if<KernelStep>(&plan.steps().front());
  if (step == nullptr) return Next::None;  // copies are made only of what has been called
  if (!groups_.room.enter_ahead(group.place, blocks_of(*step, group, request.signature)))
    return Next::None;
  PreparedParts* prepared = group.prepared.find(gate.plans, step->algorithm);
  Status launched;
  if (prepared == nullptr) {
    const GpuCalls all = calls_of(group, request, buffers_);
    const std::span calls = std::span(all).first(ranks);
    if (group.prepared.wants(gate.plans)) {
      // Preparing would take back what was launched speculatively: once that has been called.
      if (!group.speculation.launched.empty()) return Next::None;
      prepared = prepare(group, gate.plans, step->algorithm, calls);
    }
    if (prepared == nullptr)
      launched = groups_.speculator.launch(group, gate, step->algorithm, calls);
  }
  if (prepared != nullptr)
    launched = groups_.speculator.launch(group, gate, step->algorithm, *prepared);
  if (launched) return Next::Launched;
  log::error("an operation of {} bytes could not be launched speculatively: {}",
             request.signature.send_bytes(), launched.error().message);
  return launched.error();
}

PreparedParts* SpeculationPlanner::prepare(GpuGroup& group, const PlanTuple& plans,
                                           CudaAlgorithm algorithm,
                                           std::span<const CudaAllReduce> calls) {
  const std::uint64_t now = now_ns();
  if (group.preparing.due_ns(kPreparing, now) > now) {
    group.prepared.put_off(plans);
    return nullptr;
  }
  group.preparing.take(kPreparing, now);
  Result<PreparedParts> prepared =
      groups_.speculator.prepare(groups_.quiescer, group, plans, algorithm, calls);
  if (!prepared && prepared.error().code == ErrorCode::Unavailable) {  // the GPUs are busy
    group.prepared.put_off(plans);
    return nullptr;
  }
  if (!prepared) {
    log::warn("a plan is launched speculatively without having been prepared: {}",
              prepared.error().message);
  }
  return group.prepared.put(plans, prepared ? std::move(prepared).value() : PreparedParts{});
}

}  // namespace arcomm
