#include "client/src/gpu/call_notes.h"

namespace arcomm::client {

void CallNotes::note(LaunchPath path, const OperationSpec& spec, bool is_captured) {
  if (is_captured) give_up();
  const auto index = static_cast<std::uint32_t>(path);
  if (has_given_up_ || index >= kNotedPaths) return;
  const std::uint32_t number = numbers_[index] + 1;
  write_note(pages_.called[index][number % kCallNotes], number, {.call = calls_ + 1, .spec = spec});
}

void CallNotes::called(LaunchPath path) {
  const auto index = static_cast<std::uint32_t>(path);
  if (has_given_up_ || index >= kNotedPaths) return;
  ++numbers_[index];
  ++calls_;
}

void CallNotes::give_up() {
  if (has_given_up_) return;
  has_given_up_ = true;
  // A replay takes the next number, which may be one that was noted for a call that is still to
  // come on another stream.
  for (auto& path : pages_.called) {
    for (CallNote& place : path) write_note(place, 0, {});
  }
}

}  // namespace arcomm::client
