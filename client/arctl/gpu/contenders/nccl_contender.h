// NCCL's AllReduce as a peer: a communicator of its own over the board's ranks, on memory as
// cudaMalloc gives it, or on memory in symmetric windows. For the life of the process: taking NCCL
// down is no part of a benchmark.
#pragma once

#include <memory>

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/gpu/contenders/contender.h"
#include "client/arctl/gpu/contenders/nccl_library.h"
#include "client/arctl/gpu/device.h"

namespace arcomm::arctl {

// In all ranks at once. An error says why this NCCL or this machine cannot; then none of the ranks
// may use it.
Result<std::unique_ptr<GpuContender>> open_nccl(const NcclLibrary& nccl, bool symmetric,
                                                const RankBoard& board, Rank rank,
                                                GpuDevice& device);

}  // namespace arcomm::arctl
