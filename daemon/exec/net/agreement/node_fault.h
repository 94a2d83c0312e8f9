// The error for what a peer says that cannot be: its link is closed for it.
#pragma once

#include "daemon/exec/specs.h"
#include "proto/status.h"

namespace arcomm {

Error fault_of(const NodeSpec& node, const auto&... parts) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", node.name,
               " says what cannot be: ", parts...);
}

}  // namespace arcomm
