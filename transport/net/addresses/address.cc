#include "transport/net/addresses/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

#include "proto/text.h"

namespace arcomm::net {
namespace {

constexpr std::size_t kMostText = 64;  // an IPv6 address, its interface, a port

// Another daemon may have written the text.
Error wrong(std::string_view text, std::string_view why) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, '"', safe_text(text, kMostText),
               "\" is no address: ", why, " (write 10.0.0.2:7400 or [fd00::2]:7400)");
}

bool is_ip(const std::string& host) {
  if (safe_text(host, kMostText) != host) return false;  // an interface may have any name
  in6_addr parsed;
  if (inet_pton(AF_INET, host.c_str(), &parsed) == 1) return true;
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &parsed) == 1;
}

}  // namespace

std::string Address::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

Result<Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong(text, "it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos) return wrong(text, "no IPv6 address in brackets");
  } else if (host.find(':') != std::string_view::npos) {
    return wrong(text, "an IPv6 address stands in brackets");
  }
  Address address;
  address.host = host;
  const auto [end, failed] = std::from_chars(port.begin(), port.end(), address.port);
  if (failed != std::errc() || end != port.end()) return wrong(text, "the port is 0 to 65535");
  if (!is_ip(address.host)) return wrong(text, "the host is no IP address");
  return address;
}

}  // namespace arcomm::net
