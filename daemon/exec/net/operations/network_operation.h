// How one operation goes between nodes, piece by piece: what the ways of doing it have in common.
// One object of each kind serves a communicator's operations, one after the other. Thread: the
// worker's.
#pragma once

#include <cstdint>

#include "daemon/comm/communicator.h"
#include "daemon/exec/net/network_executor.h"
#include "daemon/exec/net/node_group.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"

namespace arcomm {

struct NetworkRequest {
  const Communicator& communicator;
  const Arrival& arrival;  // the head, on which the nodes have agreed
  NetworkQuestion question;
  NetworkChoice choice;
  const OfferedData& offered;
  bool was_inline = false;  // the peers have this node's partial result, with its offer
};

class NetworkOperation {
 public:
  virtual ~NetworkOperation() = default;

  // An error: it cannot be done, and let_go() follows as after a stop.
  virtual Status begin(const NetworkRequest& request) = 0;
  // A piece of it: what can be sent, and at most one chunk combined. Returns whether anything
  // moved.
  virtual bool advance() = 0;
  // The result is there, on all seats, and everything that others need of this node has left it.
  virtual bool is_done() const = 0;
  // Done or stopped: from here on nothing is begun. False: a peer's bytes are on their way into the
  // operation's memory, or its payloads on their way out; ask again.
  virtual bool let_go() = 0;
  // Payloads that came changed straight into the operation's memory. Precondition: not let go of.
  virtual net::Regions::Damage damage() const { return {}; }
};

}  // namespace arcomm
