// arcommd's AllReduce, as a client's stream sees it: one communicator over the board's ranks.
#pragma once

#include <memory>

#include "client/arctl/bench/rank_board.h"
#include "client/arctl/gpu/contenders/contender.h"
#include "client/arctl/gpu/device.h"

namespace arcomm::arctl {

// Joins the board's communicator; arcInit was called, and the device's context is current. Memory
// is of the board's kind. The destructor leaves the communicator; the stream was waited for.
Result<std::unique_ptr<GpuContender>> open_arcommd(const RankBoard& board, Rank rank,
                                                   GpuDevice& device);

}  // namespace arcomm::arctl
