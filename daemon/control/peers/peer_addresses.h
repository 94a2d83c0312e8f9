// What the addresses in net.peers and net.listen mean on this machine. Names are not looked up
// here. Pure functions, but for own_host_name(); any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"
#include "transport/net/addresses/address.h"
#include "transport/net/addresses/interfaces.h"

namespace arcomm {

inline constexpr std::uint16_t kUsualPeerPort = 7400;

std::vector<std::string> split_list(std::string_view text);  // at commas, without spaces
struct HostAndPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
// Precondition: one of a list that is_peer_list() accepts.
HostAndPort split_peer(std::string_view address);

// Which of `configured` is this daemon; "": none can be told by its text alone.
std::string find_own(const std::vector<std::string>& configured,
                     const std::optional<net::Address>& listen,
                     const std::vector<net::Interface>& here);
// Where to listen: net.listen, or the port that net.peers has this daemon on, of all addresses.
net::Address listen_address(const std::optional<net::Address>& listen,
                            const std::vector<std::string>& configured,
                            const std::vector<net::Interface>& here);
std::string own_host_name();

}  // namespace arcomm
