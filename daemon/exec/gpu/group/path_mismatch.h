// Whether ranks of a communicator have called different operations that take different launch
// paths: each then waits on its own path for ranks that never come there. Their libraries wrote
// down what they called (proto/gpu/call_note.h), and two calls with one number are to be the same
// operation. Thread: the worker's. Allocates nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/plan/failure.h"
#include "proto/types.h"

namespace arcomm {

struct PathMismatch {
  Failure failure;  // Mismatch, naming both ranks and what they asked for
  // Of the two the one that the worker does not see waiting on its board.
  Rank rank = kNoRank;
  std::uint32_t number = 0;    // of its operation, on its path
  std::uint8_t algorithm = 0;  // as the flight recorder numbers it
};

// By the last operation of each rank on each path. Nothing where graphs call some of them.
std::optional<PathMismatch> find_path_mismatch(const GpuGroup& group);

}  // namespace arcomm
