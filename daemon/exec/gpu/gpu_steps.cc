#include "daemon/exec/gpu/gpu_steps.h"

#include <array>
#include <string>
#include <variant>

#include "daemon/exec/gpu/copy_operation.h"
#include "daemon/plan/gpu_planner.h"
#include "kernels/launch/launch_blocks.h"

namespace arcomm {
namespace {

struct StepRunner {
  const GpuGroup& group;
  std::uint32_t parity;
  std::span<const CudaAllReduce> calls;
  std::uint64_t& launched;

  Status operator()(const LaunchStep&) const {
    return error(ErrorCode::Internal, Reason::Bug, "a step of the host was planned for GPUs");
  }

  Status operator()(const KernelStep& step) const {
    for (const GpuMember& member : group.members) {
      const auto rank = static_cast<std::size_t>(member.rank);
      Status done = member.launcher().launch(member.queue, parity, step.algorithm, calls[rank]);
      if (!done) {
        Error why = done.error();
        why.message = "rank " + std::to_string(rank) + ": " + why.message;
        return why;
      }
      launched |= std::uint64_t{1} << rank;
    }
    return {};
  }

  Status operator()(const CopyStep& step) const {
    std::array<CopyPart, kMaxGpuRanks> parts;
    for (const GpuMember& member : group.members) {
      const auto rank = static_cast<std::size_t>(member.rank);
      parts[rank] = {&member.launcher(), member.queue, &calls[rank]};
      launched |= std::uint64_t{1} << rank;
    }
    return launch_by_copy_engines(std::span(parts).first(calls.size()), parity,
                                  step.most_chunk_bytes);
  }
};

}  // namespace

Plan plan_of(const GpuGroup& group, const Signature& signature) {
  return make_plan(group.launches, signature, static_cast<std::uint32_t>(group.members.size()),
                   group.slots == GpuGroup::Slots::Here);
}

std::uint32_t blocks_of(const Step& step, const GpuGroup& group, const Signature& signature) {
  return launched_blocks(algorithm_of(step), signature.send_count, signature.dtype,
                         static_cast<std::uint32_t>(group.members.size()), group.most_blocks);
}

Status run_step(const Step& step, const GpuGroup& group, std::uint32_t parity,
                std::span<const CudaAllReduce> calls, std::uint64_t& launched) {
  return std::visit(StepRunner{group, parity, calls, launched}, step);
}

}  // namespace arcomm
