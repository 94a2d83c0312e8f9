#include "daemon/control/rpc/status_map.h"

#include <charconv>
#include <string>

#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostMessageBytes =
    1500;  // travels percent-encoded in a header; clients refuse large ones

std::optional<int> number_in(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const grpc::string_ref text = found->second;
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

grpc::Status to_grpc(const Error& failure, grpc::ServerContextBase& context) {
  context.AddTrailingMetadata(kReasonKey, std::to_string(static_cast<unsigned>(failure.reason)));
  if (failure.rank >= 0) context.AddTrailingMetadata(kRankKey, std::to_string(failure.rank));
  // The numbers are gRPC's own (proto/status.h).
  return {static_cast<grpc::StatusCode>(failure.code),
          std::string(cut_text(failure.message, kMostMessageBytes))};
}

std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context) {
  const std::optional<int> reason = number_in(context, kReasonKey);
  if (!reason) return std::nullopt;
  return Error{error_code_from(static_cast<unsigned>(status.error_code())),
               reason_from(static_cast<unsigned>(*reason)),
               safe_text(status.error_message(), kMostMessageBytes),
               number_in(context, kRankKey).value_or(-1)};
}

}  // namespace arcomm
