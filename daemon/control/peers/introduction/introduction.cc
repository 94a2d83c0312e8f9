#include "daemon/control/peers/introduction/introduction.h"

#include <bit>

#include "config/network_rules.h"
#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::size_t kMostNodeNameBytes = 63;
constexpr std::size_t kMostNodeAddressBytes = 300;

// What this processor's memory would hold, read as the wire's little-endian.
constexpr std::uint32_t own_byte_order() {
  if constexpr (std::endian::native == std::endian::little) return kByteOrder;
  return 0x04030201;
}

std::string text_of(const v1::NodeIdentity& one) {
  return one.address() + '\0' + one.name() + '\0' + std::to_string(one.instance()) + '\0' +
         std::to_string(one.version()) + '\0' + std::to_string(one.byte_order());
}

std::string prove(const PeerToken& token, std::string_view side, const Greeting& greeting) {
  return token.prove({"arcommd peer", side, greeting.challenge_of_client,
                      greeting.challenge_of_server, text_of(greeting.client),
                      text_of(greeting.server)});
}

}  // namespace

v1::NodeIdentity identity_of(const PeerNode& node) {
  v1::NodeIdentity identity;
  identity.set_address(node.address);
  identity.set_name(node.name);
  identity.set_instance(node.instance);
  identity.set_version(kPeerVersion);
  identity.set_byte_order(own_byte_order());
  return identity;
}

Result<PeerNode> node_of(const v1::NodeIdentity& identity) {
  PeerNode node{.address = safe_text(identity.address(), kMostNodeAddressBytes),
                .name = safe_text(identity.name(), kMostNodeNameBytes),
                .instance = identity.instance()};
  // First: another version may mean something else by the rest.
  if (identity.version() != kPeerVersion) {
    return error(ErrorCode::Unimplemented, Reason::Version, node.to_string(), " speaks version ",
                 identity.version(), " of what daemons say to each other, and this one version ",
                 kPeerVersion, ": run the same release of arcommd on all nodes");
  }
  if (identity.byte_order() != own_byte_order()) {
    return error(ErrorCode::Unimplemented, Reason::Version, node.to_string(),
                 " runs on a processor of another byte order: such nodes cannot work together");
  }
  const bool is_address =
      is_peer_list(identity.address()) && identity.address().find(',') == std::string::npos;
  if (!is_address || node.instance == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "\"", node.address,
                 "\" and instance ", node.instance, " are no daemon's");
  }
  return node;
}

std::string proof_of_server(const PeerToken& token, const Greeting& greeting) {
  return prove(token, "server", greeting);
}

std::string proof_of_client(const PeerToken& token, const Greeting& greeting) {
  return prove(token, "client", greeting);
}

Error other_token(const PeerNode& which) {
  return error(ErrorCode::PermissionDenied, Reason::Permission, which.to_string(),
               " has another token: net.token_file must hold the same on all nodes");
}

}  // namespace arcomm
