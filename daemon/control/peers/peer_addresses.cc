#include "daemon/control/peers/peer_addresses.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "transport/net/addresses/subnet.h"

namespace arcomm {
namespace {

int number_in(std::string_view text) {
  int number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool has_host(const std::vector<net::Interface>& here, const std::string& host) {
  return std::any_of(here.begin(), here.end(),
                     [&host](const net::Interface& one) { return one.host == host; });
}

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

HostAndPort split_peer(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::string(host), static_cast<std::uint16_t>(number_in(address.substr(colon + 1)))};
}

std::string find_own(const std::vector<std::string>& configured,
                     const std::optional<net::Address>& listen,
                     const std::vector<net::Interface>& here) {
  const bool is_anywhere = !listen || net::is_any_address(listen->host);
  for (const std::string& address : configured) {
    const HostAndPort peer = split_peer(address);
    if (listen && peer.port != listen->port) continue;
    if (is_anywhere ? has_host(here, peer.host) : peer.host == listen->host) return address;
  }
  return {};
}

net::Address listen_address(const std::optional<net::Address>& listen,
                            const std::vector<std::string>& configured,
                            const std::vector<net::Interface>& here) {
  if (listen) return *listen;
  const std::string own = find_own(configured, listen, here);
  if (!own.empty()) return {"::", split_peer(own).port};
  // Where all say the same, so will the entry of this daemon, whatever its name is.
  std::uint16_t port = configured.empty() ? kUsualPeerPort : split_peer(configured.front()).port;
  for (const std::string& address : configured) {
    if (split_peer(address).port != port) port = kUsualPeerPort;
  }
  return {"::", port};
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace arcomm
