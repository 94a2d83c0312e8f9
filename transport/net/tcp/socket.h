// TCP sockets as data connections want them: non-blocking, no delay, dead peers found out.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "proto/status.h"
#include "proto/unique_fd.h"
#include "transport/net/addresses/address.h"
#include "transport/net/connection.h"

namespace arcomm::net {

// "Connection refused (errno 111)"
std::string text_of_errno(int number);

// Errors: InvalidArgument, Unavailable or ResourceExhausted with address and errno.
Result<UniqueFd> listen_on(const Address& address);
// This side's address, and the other's.
Result<Address> address_of(int descriptor);
Result<Address> peer_address_of(int descriptor);
// The address of this machine that packets to `peer` leave from, as the kernel routes now; from
// `own_host` where that is an address of the same kind. Nothing is sent.
Result<std::string> source_towards(const std::string& peer, const std::string& own_host);
// Begins to connect, from the interface that has `local`'s host.
Result<UniqueFd> connect_from(const Address& local, const Address& peer);
// 0, EINPROGRESS, or why it failed.
int connect_result(int descriptor);

// Delay off; keepalive probes give a peer up that is silent for `peer_timeout` while nothing is
// sent. `buffer_bytes` each way; 0: as many as the kernel finds good.
Status set_options(int descriptor, std::chrono::milliseconds peer_timeout,
                   std::size_t buffer_bytes = 0);
// Nothing where the kernel does not tell.
LinkStatistics statistics_of(int descriptor);
// For how long a peer that owes an acknowledgement of bytes or of a probe has sent none of any
// kind; zero where it owes none. The last one may be older than what it owes. A peer that answers
// probes and has no room is alive: TCP_USER_TIMEOUT would end its connection.
std::chrono::milliseconds silence_of(int descriptor);

}  // namespace arcomm::net
