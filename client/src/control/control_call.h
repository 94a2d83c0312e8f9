// ControlChannel with generated messages: for programs that link protobuf (arctl, tests).
//   auto status = client::call<v1::StatusReply>(channel, "NodeAdmin", "GetStatus", v1::Empty{},
//   deadline);
// Thread: any. Lite and full messages both work.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "client/src/control/control_channel.h"
#include "proto/status.h"

namespace arcomm::client {

inline std::string method_path(std::string_view service, std::string_view method) {
  std::string path("/arcommd.v1.");
  return path.append(service).append("/").append(method);
}

template <typename Reply, typename Request>
Result<Reply> call(ControlChannel& channel, std::string_view service, std::string_view method,
                   const Request& request, Deadline deadline) {
  Result<std::string> bytes =
      channel.call(method_path(service, method), request.SerializeAsString(), deadline);
  if (!bytes) return std::move(bytes).error();
  Reply reply;
  if (!reply.ParseFromString(*bytes)) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon's answer to ", method,
                 " does not parse (", bytes->size(),
                 " bytes): are client and daemon of one version?");
  }
  return reply;
}

// on_reply(const Reply&) runs on the calling thread for each message.
template <typename Reply, typename Request, typename OnReply>
Status stream(ControlChannel& channel, std::string_view service, std::string_view method,
              const Request& request, Deadline deadline, OnReply&& on_reply) {
  return channel.stream(method_path(service, method), request.SerializeAsString(), deadline,
                        [&on_reply](std::string_view bytes) {
                          Reply reply;
                          if (reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
                            on_reply(reply);
                          }
                        });
}

}  // namespace arcomm::client
