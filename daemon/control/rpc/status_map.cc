#include "daemon/control/rpc/status_map.h"

#include <string>

#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostMessageBytes =
    1500;  // travels percent-encoded in a header; clients refuse large ones

}  // namespace

grpc::Status to_grpc(const Error& failure, grpc::ServerContextBase& context) {
  context.AddTrailingMetadata(kReasonKey, std::to_string(static_cast<unsigned>(failure.reason)));
  if (failure.rank >= 0) context.AddTrailingMetadata(kRankKey, std::to_string(failure.rank));
  // The numbers are gRPC's own (proto/status.h).
  return {static_cast<grpc::StatusCode>(failure.code),
          std::string(cut_text(failure.message, kMostMessageBytes))};
}

}  // namespace arcomm
