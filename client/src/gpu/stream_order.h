// On which streams a member's operations lie. They take place in the order of the calls; a single
// stream sees to that by itself, with several the starts have to.
// Thread: its owner's lock.
#pragma once

#include <cstdint>

namespace arcomm::client {

class StreamOrder {
 public:
  // Before a start that no graph captures.
  void note(void* stream) {
    has_several_ |= (has_started_ && stream != last_) || is_per_thread(stream);
    last_ = stream;
  }
  // Once the start is in its stream, or in a graph.
  void started(bool is_captured) {
    has_started_ |= !is_captured;
    was_captured_ |= is_captured;
  }

  bool has_several() const { return has_several_; }
  bool was_captured() const { return was_captured_; }

 private:
  // CUDA's handle for a stream of each thread's own: one name of several streams.
  static bool is_per_thread(const void* stream) {
    return reinterpret_cast<std::uintptr_t>(stream) == 2;
  }

  void* last_ = nullptr;  // compared, never used: it may be gone
  bool has_started_ = false;
  bool has_several_ = false;
  bool was_captured_ = false;
};

}  // namespace arcomm::client
