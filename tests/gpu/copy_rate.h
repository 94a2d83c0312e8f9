// The speed of light of a sum over NVLink: how fast two GPUs copy to each other, both at once, as a
// sum has them do.
#pragma once

#include <optional>

namespace arcomm::gpu {

// GB/s each way, by cudaMemcpyPeerAsync of 256 MB, the best of a few rounds. None where a GPU is
// missing or does not reach the other. Leaves another device current.
std::optional<double> peer_copy_gbs(int one, int other);

// The same between GPU `one` and another that this process sees, in a process of its own: the
// caller gets no context on a GPU that is not its own. Before the caller's first call of CUDA.
std::optional<double> peer_copy_gbs_apart(int one);

}  // namespace arcomm::gpu
