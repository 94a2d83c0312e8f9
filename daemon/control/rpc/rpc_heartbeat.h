// Whether gRPC's server still answers: a connection of its own to it, and now and then a call over
// it to a method that there is not. Its answer (UNIMPLEMENTED) passes through all that a client's
// passes through, gRPC's polling, its transport, the completion queue and the threads that serve
// it, and not through the control loop, which is watched by itself. Never blocks. Thread: one, the
// daemon's main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "daemon/control/access/frame_reader.h"
#include "proto/unique_fd.h"

namespace arcomm {

class RpcHeartbeat {
 public:
  // adopt: takes a connection into the gRPC server. Asks for the first time.
  explicit RpcHeartbeat(std::function<void(UniqueFd)> adopt) : adopt_(std::move(adopt)) { nudge(); }

  // Answers so far.
  std::uint64_t count();
  // Asks once more, unless an answer is still owed.
  void nudge();
  // For good. A server that shuts down would wait for the connection.
  void end();

 private:
  void connect();
  void hear();
  bool send(const std::string& bytes);

  // Whatever ends a call is an answer, a refusal under memory pressure, too.
  std::uint64_t answers() const { return answers_.counts().calls + answers_.counts().resets; }

  std::function<void(UniqueFd)> adopt_;
  bool has_ended_ = false;
  UniqueFd connection_;
  FrameReader answers_{FrameReader::Side::Server};  // of this connection
  std::uint32_t stream_ = 0;                        // of the last call; 0: none yet
  std::uint64_t heard_before_ = 0;                  // when that was made
  std::uint64_t of_earlier_ = 0;                    // answers over earlier connections
};

}  // namespace arcomm
