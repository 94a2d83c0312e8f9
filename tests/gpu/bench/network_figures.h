// What a hand-over between a kernel and the CPU costs, and a whole operation through the proxy.
#pragma once

namespace arcomm::gpu {

// Prints figures, of verified operations; false: something went wrong, and says what.
bool print_network_figures();

}  // namespace arcomm::gpu
