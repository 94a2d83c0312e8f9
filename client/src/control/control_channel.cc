#include "client/src/control/control_channel.h"

#include <utility>

#include "client/src/control/http2_connection.h"

namespace arcomm::client {
namespace {

constexpr std::size_t kIdleConnections = 4;

}  // namespace

ControlChannel::ControlChannel(std::string socket_path) : socket_path_(std::move(socket_path)) {}
ControlChannel::~ControlChannel() = default;

Result<std::string> ControlChannel::call(std::string_view method, std::string_view request,
                                         Deadline deadline, CallEnd* end) {
  std::string reply;
  std::size_t messages = 0;
  const auto keep = [&](std::string_view bytes) {
    reply.assign(bytes);
    ++messages;
  };
  ARC_RETURN_IF_ERROR(stream(method, request, deadline, keep, end));
  if (messages != 1) {
    return error(ErrorCode::Internal, Reason::Corrupt, method, " was answered with ", messages,
                 " messages instead of one");
  }
  return reply;
}

Status ControlChannel::stream(std::string_view method, std::string_view request, Deadline deadline,
                              const OnMessage& on_message, CallEnd* end) {
  if (end != nullptr) *end = CallEnd::NotSent;
  Result<std::unique_ptr<Http2Connection>> connection = take(deadline);
  if (!connection) return std::move(connection).error();
  Status status = (*connection)->call(method, request, deadline, on_message);
  if (end != nullptr) *end = (*connection)->is_answered() ? CallEnd::Answered : CallEnd::InDoubt;
  give_back(std::move(*connection));
  return status;
}

Result<std::unique_ptr<Http2Connection>> ControlChannel::take(Deadline deadline) {
  for (;;) {
    std::unique_ptr<Http2Connection> connection;
    {
      const std::lock_guard lock(mutex_);
      if (idle_.empty()) break;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    if (connection->usable()) return connection;
  }
  return Http2Connection::open(socket_path_, deadline);
}

void ControlChannel::give_back(std::unique_ptr<Http2Connection> connection) {
  if (!connection->usable()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleConnections) idle_.push_back(std::move(connection));
}

}  // namespace arcomm::client
