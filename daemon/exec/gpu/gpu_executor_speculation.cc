// What the executor launches before it is called: which operations, and from what.
#include <algorithm>
#include <array>

#include "daemon/exec/gpu/gpu_executor.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

void GpuExecutor::speculate_next(Communicator& communicator, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(communicator);
  const Gate called = gate_of(arrival, group.members.size());
  group.prediction.observe(called.plans);
  if (group.rest_launches != 0) {
    --group.rest_launches;
    return;
  }
  const std::vector<SpeculativeLaunch>& launched = group.speculation.launched;
  // What is on the board already and was not speculative comes first.
  if (called.number == 0 || communicator.board.size() > launched.size() + 1) return;
  while (communicator.ended.ok() && plane_.may_speculate(group)) {
    const Gate& last = launched.empty() ? called : launched.back().gate;
    const PlanTuple* next = group.prediction.after(last.plans);
    const Gate gate{.number = last.number + 1, .plans = next == nullptr ? PlanTuple{} : *next};
    if (next == nullptr || gate.number == 0 || !speculate(communicator, gate)) return;
  }
}

bool GpuExecutor::speculate(Communicator& communicator, const Gate& gate) {
  GpuGroup& group = *gpus_of(communicator);
  Parts parts;
  Signature signature;
  std::uint64_t timeout_ns = ~std::uint64_t{0};
  for (const GpuMember& member : group.members) {
    const auto rank = static_cast<std::size_t>(member.rank);
    const PersistentPlan* plan = plans_.find(gate.plans[rank]);
    if (plan == nullptr || plan->owner != member.session || plan->member != member.id ||
        plan->signature.count == 0 || (rank != 0 && plan->signature != signature))
      return false;
    signature = plan->signature;
    timeout_ns = std::min(timeout_ns, plan->timeout_ns);
    parts[rank] = {plan->owner, plan->send_buffer, plan->recv_buffer, plan->send, plan->recv};
  }
  const CudaAlgorithm algorithm = choose_for(group, signature);
  if (entry_of(algorithm).launches_all_ranks) return false;  // only what has been called
  PreparedParts* prepared = group.prepared.find(gate.plans, algorithm);
  Status speculative;
  if (prepared == nullptr) {
    std::array<CudaAllReduce, kMaxGpuRanks> all;
    const std::span calls = std::span(all).first(group.members.size());
    for (const GpuMember& member : group.members) {
      calls[static_cast<std::size_t>(member.rank)] =
          call_of(group, member.rank, signature, parts, gate.number, timeout_ns);
    }
    if (group.prepared.wants(gate.plans)) {
      // Preparing would take back what is ahead: once that has been called.
      if (!group.speculation.launched.empty()) return false;
      prepared = prepare(group, gate.plans, algorithm, calls);
    }
    if (prepared == nullptr) speculative = plane_.speculate(group, gate, algorithm, calls);
  }
  if (prepared != nullptr) speculative = plane_.speculate(group, gate, algorithm, *prepared);
  if (speculative) return true;
  log::error("an operation of {} bytes could not be launched ahead: {}", signature.bytes(),
             speculative.error().message);
  communicators_.revoke(communicator, Failure::from(speculative.error()));
  return false;
}

PreparedParts* GpuExecutor::prepare(GpuGroup& group, const PlanTuple& plans,
                                    CudaAlgorithm algorithm, std::span<const CudaAllReduce> calls) {
  Result<PreparedParts> prepared = plane_.prepare(group, plans, algorithm, calls);
  if (!prepared && prepared.error().code == ErrorCode::Unavailable) {  // the GPUs are busy
    group.prepared.put_off(plans);
    return nullptr;
  }
  if (!prepared) {
    log::warn("a plan is launched speculation without having been prepared: {}",
              prepared.error().message);
  }
  return group.prepared.put(plans, prepared ? std::move(prepared).value() : PreparedParts{});
}

}  // namespace arcomm
