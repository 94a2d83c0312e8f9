// Writes down for the daemon what a member calls (proto/gpu/call_note.h). What a graph replays is
// not seen here: from the first call that one captures on nothing is known any more, and ranks that
// call different operations on different paths hear of it at their deadline.
// Thread: its owner's lock. Lives no longer than the mailbox whose pages these are.
#pragma once

#include <cstdint>

#include "proto/gpu/device_mailbox.h"
#include "proto/operation_spec.h"

namespace arcomm::client {

class CallNotes {
 public:
  explicit CallNotes(HostPages& pages) : pages_(pages) {}

  // Before the next call is put on a stream, or into a graph; called(), once it is there.
  void note(LaunchPath path, const OperationSpec& spec, bool is_captured);
  void called(LaunchPath path);

 private:
  void give_up();

  HostPages& pages_;
  std::uint32_t calls_ = 0;
  std::uint32_t numbers_[kNotedPaths] = {};  // of the last operation of each path
  bool has_given_up_ = false;
};

}  // namespace arcomm::client
