#include "transport/net/addresses/subnet.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

namespace arcomm::net {
namespace {

struct IpBytes {
  IpFamily family;
  std::array<std::uint8_t, 16> bytes{};
};

std::optional<IpBytes> bytes_of(std::string_view host) {
  const std::string text(host.substr(0, host.find('%')));
  IpBytes address{.family = IpFamily::V4};
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
  address.family = IpFamily::V6;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

unsigned most_bits(IpFamily family) {
  return family == IpFamily::V4 ? 32 : 128;
}

bool begins_alike(const std::array<std::uint8_t, 16>& one,
                  const std::array<std::uint8_t, 16>& other, unsigned bits) {
  for (unsigned bit = 0; bit < bits; ++bit) {
    const unsigned mask = 0x80u >> bit % 8;
    if (((one[bit / 8] ^ other[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<IpFamily> ip_family(std::string_view host) {
  const auto address = bytes_of(host);
  return address ? std::optional(address->family) : std::nullopt;
}

bool is_link_local(std::string_view host) {
  return Subnet::around("fe80::", 10).contains(host) ||
         Subnet::around("169.254.0.0", 16).contains(host);
}

bool is_any_address(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

Result<Subnet> Subnet::parse(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto address = bytes_of(text.substr(0, slash));
  unsigned bits = address ? most_bits(address->family) : 0;
  bool is_right = address.has_value();
  if (is_right && slash < text.size()) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, failed] = std::from_chars(number.begin(), number.end(), bits);
    is_right = failed == std::errc() && end == number.end() && bits <= most_bits(address->family);
  }
  if (!is_right)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, '"', text,
                 "\" is no network (write 10.0.0.0/8 or fd00::/64)");
  return around(text.substr(0, slash), bits);
}

Subnet Subnet::around(std::string_view host, unsigned bits) {
  Subnet subnet;
  const IpBytes address = *bytes_of(host);
  subnet.family_ = address.family;
  subnet.network_ = address.bytes;
  subnet.bits_ = std::min(bits, most_bits(address.family));
  return subnet;
}

bool Subnet::contains(std::string_view host) const {
  const auto address = bytes_of(host);
  return address && address->family == family_ && begins_alike(address->bytes, network_, bits_);
}

}  // namespace arcomm::net
