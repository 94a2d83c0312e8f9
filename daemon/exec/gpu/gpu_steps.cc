#include "daemon/exec/gpu/gpu_steps.h"

#include <array>
#include <string>
#include <variant>

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

  Status operator()(const CopyStep&) const {
    std::array<JointPart, kMaxGpuRanks> parts;
    for (const GpuMember& member : group.members) {
      const auto rank = static_cast<std::size_t>(member.rank);
      parts[rank] = {&member.launcher(), member.queue, &calls[rank]};
      launched |= std::uint64_t{1} << rank;
    }
    return group.members[0].launcher().launch_together(std::span(parts).first(calls.size()), parity,
                                                       CudaAlgorithm::CopyEngine);
  }
};

}  // namespace

Status run_step(const Step& step, const GpuGroup& group, std::uint32_t parity,
                std::span<const CudaAllReduce> calls, std::uint64_t& launched) {
  return std::visit(StepRunner{group, parity, calls, launched}, step);
}

}  // namespace arcomm
