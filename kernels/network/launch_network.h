// AllReduce between nodes on one GPU's side: kernels that stage chunks for the CPU proxy and
// combine what it brings. Their twins on the CPU are daemon/proxy/host/host_producer.h. No CUDA
// header is needed.
//
// A kernel has a block or two per lane, all of which must be on the GPU together; it ends at its
// timeout at the latest, or when the proxy raises the FIFOs' words. FIFOs whose operation did not
// end well are not to be used again. Any thread; nothing here allocates or waits.
#pragma once

#include <cstdint>

#include "kernels/network/network_call.h"
#include "proto/status.h"

namespace arcomm {

// In device memory, zeroed once: what the blocks of a launch tell each other. Of one stream.
struct NetworkWords {
  unsigned long long failed;  // of this launch: the first Done word that is not Ok
  std::uint32_t blocks_done;
  std::uint32_t padding;
};

struct NetworkLaunch {
  // Pointers of the GPU's; the ports and their step counts lie in its memory.
  NetworkCall call;
  NetworkWords* words = nullptr;
  // Host memory that the GPU reaches: a Done word with this number, when all blocks have ended. Ok:
  // the result may be read behind an acquire of it.
  std::uint64_t* verdict = nullptr;
  std::uint32_t number = 0;
  // Of each of this node's ranks, where all went well, before the verdict: its mailbox gets a Done
  // word with its own number, for which its client's stream waits. Null: nobody does.
  struct Waiter {
    std::uint64_t* done = nullptr;
    std::uint32_t number = 0;
  };
  Waiter waiters[kMaxGpuRanks] = {};
};

// `stream`: a cudaStream_t of the current GPU. InvalidArgument: what no kernel can run.
Status launch_network_exchange(const NetworkLaunch& launch, void* stream);
// Loads those of the exchange into the current GPU, and makes room for their stacks, as their
// launch would wait for it. May itself wait for what this process runs there.
Status load_network_kernels();
Status launch_network_ring(const NetworkLaunch& launch, bool is_bidirectional, void* stream);

}  // namespace arcomm
