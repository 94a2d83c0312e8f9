// What the kernel of an operation between nodes is to be launched with, from what its ranks have
// called. Thread: the worker's.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/comm/communicator.h"
#include "daemon/exec/gpu/network/network_fifos.h"
#include "daemon/memory/buffer_registry.h"

namespace arcomm {

// The table of communicators ends what is late, and says for whom it was. Kernels and proxy do so
// by themselves where the worker does not get to it.
inline constexpr std::uint64_t kNetworkGraceNs = 50'000'000;

// How long an arrival's ranks wait from now on; 0: no longer.
std::uint64_t remaining_ns(const Arrival& arrival, std::uint64_t now_ns);

// The word for which the member's client waits, as GPU `ordinal` reaches it.
std::uint64_t* done_word(const GpuMember& member, int ordinal);
std::uint32_t number_of(const Operation& operation);

// An operation of no elements has ended: the clients hear of it.
Status tell_all_done(const GpuGroup& group, const Arrival& arrival);

// What a kernel's verdict says, where the proxy has not said anything better before.
Failure failure_of_kernel(const Done& verdict, const Communicator& communicator, std::uint64_t seq);

// Launches the kernel of what all seats have called, which is the head.
Status launch_between_nodes(const Communicator& communicator, const BufferRegistry& buffers,
                            NetworkFifos& fifos, std::uint64_t now_ns);

}  // namespace arcomm
