#include "transport/net/endpoint.h"

#include <algorithm>

namespace arcomm::net {

std::string connection_name(std::string_view peer, const Address& address, const HelloKey& key) {
  std::string name(peer);
  name += " (" + address.to_string() + "), stream " + std::to_string(key.stream) + " over rail " +
          std::to_string(key.rail);
  return name;
}

Status check_answer(std::span<const std::byte> given, const Secret& expected) {
  std::byte difference{given.size() == expected.size() ? std::uint8_t{0} : std::uint8_t{1}};
  for (std::size_t i = 0; i < std::min(given.size(), expected.size()); ++i)
    difference |= given[i] ^ expected[i];
  if (difference == std::byte{0}) return {};
  return error(ErrorCode::Unauthenticated, Reason::Permission,
               "the process that answers there does not know what the peer's control plane told "
               "this daemon to "
               "expect: look what listens at that address, and whether it is the peer's");
}

}  // namespace arcomm::net
