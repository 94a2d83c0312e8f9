// One HTTP/2 connection over a unix socket, as far as gRPC needs it: one call at a time.
// Thread: one at a time (ControlChannel hands a connection to one call). Owns the socket, which a
// forked child closes and never uses.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

struct nghttp2_session;

namespace arcomm::client {

class Http2Connection {
 public:
  using OnMessage = std::function<void(std::string_view message)>;

  static Result<std::unique_ptr<Http2Connection>> open(const std::string& path, Deadline deadline);
  ~Http2Connection();
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  // False once the peer has hung up or said goodbye: take another connection.
  bool usable();
  // Sends one request and hands each answer to on_message until the status arrives.
  Status call(std::string_view method, std::string_view request, Deadline deadline,
              const OnMessage& on_message);
  // The last call's status is the peer's word, and not what became of the connection.
  bool is_answered() const { return is_answered_; }

 private:
  struct Stream;

  Http2Connection(UniqueFd fd, std::string path);
  Status start();
  Status flush(Deadline deadline);  // writes what nghttp2 has to say
  Status send(std::string_view bytes, Deadline deadline);
  Status receive(Deadline deadline);  // waits for bytes and feeds them to nghttp2
  Status read_once(bool* would_block);
  Error lost(const char* what) const;
  Error late() const;
  Error lost_while_sending(int why);  // the peer may have said something before it hung up
  static Status outcome(const Stream& stream);

  UniqueFd fd_;
  std::string path_;
  nghttp2_session* session_ = nullptr;
  Stream* stream_ = nullptr;  // the call in progress
  bool broken_ = false;
  bool is_answered_ = false;
  std::optional<Error> refusal_;  // what a peer said that will not serve this process
};

}  // namespace arcomm::client
