// The oracle of operations with a codec: the golden codec of kernels/codec, one block at a time.
// The first is what reference.h's function calls where a codec is asked for. Any thread.
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace arcomm::reference {

// In any stage. Preconditions: those of arcomm::all_reduce_range where there is a codec.
void coded_all_reduce_range(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last);
// As more than two GPUs do it, and hosts by direct: what is added up is divided, and encoded and
// decoded once more.
void coded_all_reduce_in_two_hops(const AllReduceArgs& args, std::uint64_t first,
                                  std::uint64_t last);

}  // namespace arcomm::reference
