// Which interfaces carry data between daemons, and why each does or does not. At most one address
// of an interface does. A pure function of what it is given; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/status.h"
#include "transport/net/addresses/interfaces.h"

namespace arcomm::net {

struct InterfaceWishes {
  // net.interfaces: names with * and ?, networks, addresses, with commas between them; "": what
  // routes to the peers, and without peers whatever has a carrier.
  std::string list = {};
  std::vector<std::string> peers = {};  // their addresses, this daemon's own may be among them
  std::string own_host = {};            // that peers know this daemon by; "", "0.0.0.0", "::": any
};

struct InterfaceChoice {
  Interface interface;  // its host may be another one of a loopback's network: 127.0.0.2
  bool is_chosen = false;
  std::string why;  // for people, short: "it routes to 10.0.0.3", "no carrier"
};

// Which address of this machine packets to `peer` leave from, if `own_host` is left to use as it is
// (socket.h's source_towards; tests have routes of their own).
using SourceTowards =
    std::function<Result<std::string>(const std::string& peer, const std::string& own_host)>;

// In the order of `all`. InvalidArgument for a list that holds no network; FailedPrecondition when
// nothing is chosen, with what speaks against each.
Result<std::vector<InterfaceChoice>> choose_interfaces(const std::vector<Interface>& all,
                                                       const InterfaceWishes& wishes,
                                                       const SourceTowards& source_towards);
// The same of this machine as it is now.
Result<std::vector<InterfaceChoice>> choose_interfaces(const InterfaceWishes& wishes);

}  // namespace arcomm::net
