// The calls of one connection that have begun and not ended, by the ids of their streams: those,
// too, whose message never comes, of which the server above has not heard.
// SETTINGS_MAX_CONCURRENT_STREAMS binds only a client that has acknowledged it, and a call without
// an end costs gRPC some kilobytes for as long as its connection lives. What it is told is a
// stranger's. Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace arcomm {

class OpenCalls {
 public:
  // Headers from the client. Those that end a call (trailers) begin none, since ids go up.
  void begin(std::uint32_t stream) {
    if (stream <= last_) return;
    last_ = stream;
    open_.insert(stream);
  }
  // A reset from either side, or the server's last frame of it.
  void end(std::uint32_t stream) { open_.erase(stream); }
  std::size_t count() const { return open_.size(); }

 private:
  std::uint32_t last_ = 0;
  std::unordered_set<std::uint32_t> open_;  // bounded by who asks for the count (flood_budget.h)
};

}  // namespace arcomm
