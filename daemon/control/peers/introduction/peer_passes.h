// Who has shown this daemon that it knows the token: from a connection's first Greet to the pass
// that its later calls carry. Thread: the control loop.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "daemon/control/access/caller.h"
#include "daemon/control/peers/introduction/introduction.h"

namespace arcomm {

class PeerPasses {
 public:
  // Greetings that wait for their proof; of more the oldest is forgotten.
  static constexpr std::size_t kMostGreetings = 256;

  // Outlives this.
  explicit PeerPasses(const PeerToken& token) : token_(token) {}

  Result<v1::GreetReply> greet(ConnectionNumber from, const PeerNode& self,
                               const v1::GreetRequest& request);
  struct Proven {
    PeerNode node;
    v1::ProveReply reply;
  };
  // PermissionDenied naming the daemon where it does not know the token.
  Result<Proven> prove(ConnectionNumber from, const v1::ProveRequest& request);
  // Who calls. Unauthenticated: it is to greet again.
  Result<PeerNode> check(ConnectionNumber from, const v1::Pass& pass) const;
  // The connection has ended, and what it had shown with it.
  void end(ConnectionNumber connection);

 private:
  struct Waiting {
    Greeting greeting;
    PeerNode node;
  };
  struct Good {
    PeerNode node;
    std::string pass;
  };

  const PeerToken& token_;
  std::map<ConnectionNumber, Waiting> greetings_;
  std::map<ConnectionNumber, Good> passes_;  // one for each instance, of its last connection
};

}  // namespace arcomm
