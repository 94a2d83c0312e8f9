#include "daemon/control/peers/introduction/peer_passes.h"

#include <utility>

namespace arcomm {
namespace {

constexpr std::size_t kChallengeBytes = 32;

}  // namespace

Result<v1::GreetReply> PeerPasses::greet(ConnectionNumber from, const PeerNode& self,
                                         const v1::GreetRequest& request) {
  Result<PeerNode> node = node_of(request.from());
  if (!node) return std::move(node).error();
  if (request.challenge().size() != kChallengeBytes)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a challenge has 32 bytes");
  Result<std::string> challenge = random_secret();
  if (!challenge) return std::move(challenge).error();
  Greeting greeting{.challenge_of_client = request.challenge(),
                    .challenge_of_server = *challenge,
                    .client = request.from(),
                    .server = identity_of(self)};
  v1::GreetReply reply;
  *reply.mutable_from() = greeting.server;
  reply.set_challenge(*std::move(challenge));
  reply.set_proof(proof_of_server(token_, greeting));
  passes_.erase(from);
  // Numbers of connections go up, so the first is the oldest.
  if (greetings_.size() >= kMostGreetings) greetings_.erase(greetings_.begin());
  greetings_.insert_or_assign(from, Waiting{std::move(greeting), *std::move(node)});
  return reply;
}

Result<PeerPasses::Proven> PeerPasses::prove(ConnectionNumber from,
                                             const v1::ProveRequest& request) {
  auto found = greetings_.extract(from);
  if (!found || found.mapped().node.instance != request.instance()) {
    return error(ErrorCode::Unauthenticated, Reason::Permission,
                 "greet before proving anything: nothing is known of this connection");
  }
  Waiting& waiting = found.mapped();
  if (!equal_secrets(request.proof(), proof_of_client(token_, waiting.greeting)))
    return other_token(waiting.node);
  if (waiting.node.address.empty()) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a daemon without an address cannot be called back");
  }
  Result<std::string> pass = random_secret();
  if (!pass) return std::move(pass).error();
  std::erase_if(passes_, [&waiting](const auto& one) {
    return one.second.node.instance == waiting.node.instance;
  });
  passes_.insert_or_assign(from, Good{waiting.node, *pass});
  Proven proven{waiting.node, {}};
  proven.reply.set_pass(*std::move(pass));
  return proven;
}

Result<PeerNode> PeerPasses::check(ConnectionNumber from, const v1::Pass& pass) const {
  const auto found = passes_.find(from);
  if (found != passes_.end() && found->second.node.instance == pass.instance() &&
      equal_secrets(found->second.pass, pass.pass())) {
    return found->second.node;
  }
  return error(ErrorCode::Unauthenticated, Reason::Permission,
               "the pass is not known here: greet again");
}

void PeerPasses::end(ConnectionNumber connection) {
  greetings_.erase(connection);
  passes_.erase(connection);
}

}  // namespace arcomm
