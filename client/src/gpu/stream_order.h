// On which streams a member's operations lie, and which of them graphs hold. They take place in the
// order of the calls; a single stream sees to that by itself, with several the starts have to. Of
// what graphs hold nobody sees to it: those have identities.
// Thread: its owner's lock.
#pragma once

#include <cstdint>

#include "proto/gpu/captured_identity.h"

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
    if (is_captured) ++captured_;
  }

  bool has_several() const { return has_several_; }
  bool was_captured() const { return captured_ != 0; }
  // Of the next start.
  std::uint32_t identity(bool is_captured) const {
    return is_captured ? identity_of_captured(captured_) : kNoIdentity;
  }

 private:
  // CUDA's handle for a stream of each thread's own: one name of several streams.
  static bool is_per_thread(const void* stream) {
    return reinterpret_cast<std::uintptr_t>(stream) == 2;
  }

  void* last_ = nullptr;  // compared, never used: it may be gone
  bool has_started_ = false;
  bool has_several_ = false;
  std::uint64_t captured_ = 0;  // operations, on whatever path
};

}  // namespace arcomm::client
