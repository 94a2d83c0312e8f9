// The speed of light of a sum over NVLink: how fast two GPUs copy to each other, both at once, as a
// sum has them do.
#pragma once

#include <optional>

namespace arcomm::gpu {

// GB/s each way, by cudaMemcpyPeerAsync of 256 MB, the best of a few rounds. None where a GPU is
// missing or does not reach the other. Leaves another device current.
std::optional<double> peer_copy_gbs(int one, int other);

}  // namespace arcomm::gpu
