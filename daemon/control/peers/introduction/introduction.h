// What two daemons say when they meet, and whether it fits: identities, versions, proofs of the
// token. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/control/peers/introduction/peer_token.h"
#include "daemon/control/peers/peer_messenger.h"
#include "proto/arcommd/v1/peer.pb.h"
#include "proto/status.h"

namespace arcomm {

// Of peer.proto, of the messages of workers and of the frames, and of what nodes conclude from them
// each by itself: which way an operation goes and how it is cut. Daemons of two versions do not
// work together.
inline constexpr std::uint32_t kPeerVersion = 5;

v1::NodeIdentity identity_of(const PeerNode& node);
// Safe to be shown; its address is "" while it looks for itself in its list. InvalidArgument for
// what no daemon says; Unimplemented/Version, naming the daemon and both versions, for one of
// another version or byte order.
Result<PeerNode> node_of(const v1::NodeIdentity& identity);

// Both challenges and both identities are in what is proven: a proof is good for this greeting.
struct Greeting {
  std::string challenge_of_client, challenge_of_server;
  v1::NodeIdentity client, server;
};
std::string proof_of_server(const PeerToken& token, const Greeting& greeting);
std::string proof_of_client(const PeerToken& token, const Greeting& greeting);
// To `which`, whose proof is wrong.
Error other_token(const PeerNode& which);

}  // namespace arcomm
