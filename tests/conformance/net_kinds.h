// The transports between daemons that the conformance suite runs over. A new one adds a NetKind to
// all_net_kinds().
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "transport/net/endpoint.h"

namespace arcomm::net {

// Hosts 0, 1, ... that can reach each other.
class NetUnderTest {
 public:
  virtual ~NetUnderTest() = default;
  virtual Result<std::unique_ptr<Endpoint>> open(int host, EndpointOptions options) = 0;
  // An address of that host where nobody listens.
  virtual Address nobody(int host) = 0;
  // Lets a moment pass.
  virtual void step() = 0;
};

struct NetKind {
  std::string name;
  std::function<std::unique_ptr<NetUnderTest>()> create;
  bool sends_without_copies = false;
};
inline void PrintTo(const NetKind& kind, std::ostream* out) {
  *out << kind.name;
}
std::vector<NetKind> all_net_kinds();

}  // namespace arcomm::net
