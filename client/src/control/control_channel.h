// gRPC calls over one of the daemon's unix sockets (client.sock or admin.sock).
//
// This is a gRPC client of its own, on nghttp2: the library must load beside any other gRPC or
// protobuf in the process, start no thread, survive fork and end each call at its deadline, and
// Debian's static gRPC cannot be linked into a shared library. Messages are bytes here; callers
// with generated classes use control_call.h.
//
// Thread: any; calls run in parallel, each on a connection of its own, and idle connections are
// kept for the next call. Errors: the daemon's status with its reason and rank; NotRunning where
// nobody listens; DaemonLost where the connection broke; Timeout where the deadline passed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/session/deadline.h"
#include "proto/status.h"

namespace arcomm::client {

class Http2Connection;

// InDoubt: the daemon may have done what was asked, or may do it yet; nobody heard.
enum class CallEnd : std::uint8_t { NotSent, InDoubt, Answered };

class ControlChannel {
 public:
  using OnMessage = std::function<void(std::string_view message)>;

  // Connects lazily, at the first call.
  explicit ControlChannel(std::string socket_path);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  ~ControlChannel();

  const std::string& socket_path() const { return socket_path_; }

  // `method` is the full name, "/arcommd.v1.NodeControl/Attach"; both strings are serialised
  // messages.
  Result<std::string> call(std::string_view method, std::string_view request, Deadline deadline,
                           CallEnd* end = nullptr);
  // A server-streaming call: on_message runs on the calling thread for each message, in order.
  Status stream(std::string_view method, std::string_view request, Deadline deadline,
                const OnMessage& on_message, CallEnd* end = nullptr);

 private:
  Result<std::unique_ptr<Http2Connection>> take(Deadline deadline);
  void give_back(std::unique_ptr<Http2Connection> connection);

  const std::string socket_path_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Http2Connection>> idle_;
};

}  // namespace arcomm::client
