// The host twin of the network kernels (kernels/network): the same blocks, waits and words, on the
// CPU. A node's part of an operation is a block of each kind per lane; it has succeeded when all of
// them ended with Ok, and only then its result is to be read.
// Thread: each block is resumed by one; what a call names outlives its blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/proxy/host/host_block.h"
#include "kernels/network/network_call.h"

namespace arcomm::proxy {

struct HostCall {
  NetworkCall call;
  const std::function<std::uint64_t()>* clock = nullptr;  // nanoseconds, never 0
  const std::function<void()>* wake = nullptr;            // the proxy, if its doorbell says so
};

// Everybody's partial to everybody: copies this node's into slots ...
HostBlock stage_for_exchange(HostCall host, std::uint32_t lane);
// ... and combines all nodes', in their order.
HostBlock combine_exchange(HostCall host, std::uint32_t lane);
// The ring is one block a lane, which receives, adds and sends on.
HostBlock run_ring(HostCall host, std::uint32_t lane, bool is_bidirectional);

}  // namespace arcomm::proxy
