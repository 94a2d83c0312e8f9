// Our errors as gRPC statuses: the same number, the message as text, reason and rank as trailing
// metadata.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <optional>

#include "proto/status.h"

namespace arcomm {

inline constexpr char kReasonKey[] = "arcomm-reason";
inline constexpr char kRankKey[] = "arcomm-rank";

// Adds the metadata to `context`, whose call must not have been finished.
grpc::Status to_grpc(const Error& failure, grpc::ServerContextBase& context);
// The inverse; nullopt: not one of ours, but gRPC's own.
std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace arcomm
