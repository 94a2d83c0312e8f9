// The transports between daemons that the conformance suite runs over. A new one adds a NetKind to
// all_net_kinds().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "transport/net/endpoint.h"

namespace arcomm::net {

// What a broken or hostile host does to a frame.
enum class Tampering : std::uint8_t { Repeats, LeavesOut };

// Hosts 0, 1, ... that can reach each other.
class NetUnderTest {
 public:
  virtual ~NetUnderTest() = default;
  // What this machine lacks for it; "": nothing.
  virtual std::string missing() const { return {}; }
  virtual Result<std::unique_ptr<Endpoint>> open(int host, EndpointOptions options) = 0;
  // An address of that host where nobody listens.
  virtual Address nobody(int host) = 0;
  // Where host 0 connects to instead of `peer`, an endpoint of host 1, so that what it sends can be
  // tampered with; once.
  virtual Address tampered_way_to(const Address& peer) = 0;
  // The next frame that host 0 sends on it.
  virtual void tamper_next(Tampering how) = 0;
  // Lets a moment pass.
  virtual void step() = 0;
};

struct NetKind {
  std::string name;
  std::function<std::unique_ptr<NetUnderTest>()> create;
  bool sends_without_copies = false;
  bool may_resend = false;  // by itself: TCP's tail, where a busy machine lets the receiver wait
};
inline void PrintTo(const NetKind& kind, std::ostream* out) {
  *out << kind.name;
}
std::vector<NetKind> all_net_kinds();

}  // namespace arcomm::net
