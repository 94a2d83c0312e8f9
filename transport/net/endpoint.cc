#include "transport/net/endpoint.h"

namespace arcomm::net {

std::string connection_name(std::string_view peer, const Address& address, const HelloKey& key) {
  std::string name(peer);
  name += " (" + address.to_string() + "), stream " + std::to_string(key.stream) + " over rail " +
          std::to_string(key.rail);
  return name;
}

}  // namespace arcomm::net
