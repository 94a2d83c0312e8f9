// The calls about communicators and their members: checks who asks and for what. Joining is left to
// CommunicatorJoins; leaving, aborting and describing go to the worker. Thread: the control loop.
#pragma once

#include <cstdint>

#include "daemon/control/calls/communicators/communicator_joins.h"
#include "daemon/control/control_state.h"

namespace arcomm {

class CommunicatorCalls {
 public:
  CommunicatorCalls(ControlState& state, CommunicatorJoins& joins) : state_(state), joins_(joins) {}

  void create_communicator(const Caller& caller, const v1::CreateCommunicatorRequest& request,
                           Answer<v1::CreateCommunicatorReply> answer);
  // Both end the communicator's epoch for all its ranks.
  void destroy_communicator(const Caller& caller, const v1::DestroyCommunicatorRequest& request,
                            Answer<v1::Empty> answer);
  void abort_communicator(const Caller& caller, const v1::AbortCommunicatorRequest& request,
                          Answer<v1::Empty> answer);
  void describe(const Caller& caller, const v1::DescribeRequest& request,
                Answer<v1::DescribeReply> answer);
  // An answer did not reach its caller, who can neither use nor leave its seat: the other ranks
  // would wait for it.
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::CreateCommunicatorReply& unheard);

 private:
  ControlState& state_;
  CommunicatorJoins& joins_;
};

}  // namespace arcomm
