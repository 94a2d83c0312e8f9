// Where a daemon's data connections arrive: an IP address and a port. Names are not looked up here
// (a name service may hang); the control plane does that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace arcomm::net {

struct Address {
  std::string host;  // "10.0.0.2", "fe80::1%eth0", in the form that inet_ntop writes
  std::uint16_t port = 0;

  bool operator==(const Address&) const = default;
  // "10.0.0.2:7400", "[fe80::1%eth0]:7400"
  std::string to_string() const;
};

// The inverse of to_string. InvalidArgument naming the text and what is wrong with it.
Result<Address> parse_address(std::string_view text);

}  // namespace arcomm::net
