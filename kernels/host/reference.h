// The oracle: every reduction spelled out one element at a time, in rank order, slow and obvious.
// It computes what launch.h says a result is; tests and `arctl check` compare against it bit for
// bit. Any thread.
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace arcomm::reference {

// As arcomm::all_reduce_range, without a choice.
void all_reduce_range(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last);

}  // namespace arcomm::reference
