// Why the daemon would do an AllReduce the way it would: `arctl tune --explain`. Any thread.
#pragma once

#include "daemon/in_force.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/status.h"

namespace arcomm {

// InvalidArgument for a question about more ranks or nodes than there can be.
Result<v1::ExplainReply> explain_all_reduce(const v1::ExplainRequest& request, bool on_gpus,
                                            const InForce& in_force);

}  // namespace arcomm
