// A range of IP addresses, "10.0.0.0/8" or "fd00::/64". A value; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace arcomm::net {

enum class IpFamily : std::uint8_t { V4, V6 };
// Of an address without its port, "10.0.0.2" or "fe80::1%eth0"; nullopt: it is none.
std::optional<IpFamily> ip_family(std::string_view host);
// "fe80::1%eth0", "169.254.0.1": what is good on one wire only.
bool is_link_local(std::string_view host);
// "", "0.0.0.0", "::": no address of anybody.
bool is_any_address(std::string_view host);

class Subnet {
 public:
  // InvalidArgument naming the text. An address alone is the range of itself.
  static Result<Subnet> parse(std::string_view text);
  // What `host` is in, if `bits` of it name the network. Precondition: it is an address.
  static Subnet around(std::string_view host, unsigned bits);

  bool contains(std::string_view host) const;

 private:
  IpFamily family_ = IpFamily::V4;
  unsigned bits_ = 0;
  std::array<std::uint8_t, 16> network_{};
};

}  // namespace arcomm::net
