// From what was asked, called or speculated on, to what a kernel is launched with: every rank's
// memory by the addresses at which each GPU finds it. Thread: the worker's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/comm/arrival_board.h"
#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/plan/operation.h"
#include "daemon/session/persistent_plan.h"

namespace arcomm {

// One operation of all ranks. The buffers are held by operations or plans.
struct GpuRequest {
  struct Part {  // of one rank
    SessionId session;
    BufferId send_buffer, recv_buffer;
    const std::byte* send = nullptr;
    std::byte* recv = nullptr;
    std::uint32_t number = 0;  // of the launched path's operations
  };

  Signature signature;
  std::uint64_t timeout_ns = 0;
  std::array<Part, kMaxGpuRanks> parts;  // by rank
};

// Of one that all ranks have called.
GpuRequest request_of(const Arrival& arrival, std::size_t ranks, std::uint64_t now_ns);

// By rank.
using GpuCalls = std::array<CudaAllReduce, kMaxGpuRanks>;
GpuCalls calls_of(const GpuGroup& group, const GpuRequest& request, const BufferRegistry& buffers);

}  // namespace arcomm
