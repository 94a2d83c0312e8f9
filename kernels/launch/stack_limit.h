// How much stack the threads of a GPU have. The driver keeps as much for every thread that the GPU
// can hold, 264 MiB of an H200 by default; kernels of this tree need next to none. Built with CUDA
// only.
#pragma once

#include "proto/status.h"

namespace arcomm {

// The threads of the current GPU have no stack from then on, until what loads kernels makes room
// for theirs: load_all_reduce_kernels() and its like. May wait for what this process runs there.
Status give_back_stacks();

}  // namespace arcomm
