// Our errors as gRPC statuses: the same number, the message as text, reason and rank as trailing
// metadata.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "proto/status.h"

namespace arcomm {

inline constexpr char kReasonKey[] = "arcomm-reason";
inline constexpr char kRankKey[] = "arcomm-rank";

// Adds the metadata to `context`, whose call must not have been finished.
grpc::Status to_grpc(const Error& failure, grpc::ServerContextBase& context);

}  // namespace arcomm
