// A member's HostPages: a sealed memfd that the client writes and the worker reads. Owns both
// ends; the descriptor is duplicated for the client. Thread: the worker's; the client writes at any
// time.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/gpu/device_mailbox.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class DoorbellPage {
 public:
  // Numbers of both paths follow the one before: GpuHardware::operations_before.
  static Result<DoorbellPage> create(std::uint32_t operations_before);

  // Acquires: pairs with the release store of the client's kernel.
  Doorbell launched() const {
    return doorbell_from(__atomic_load_n(&doorbells().launched, __ATOMIC_ACQUIRE));
  }
  std::uint32_t resident_posted() const {
    return __atomic_load_n(&doorbells().resident_posted, __ATOMIC_RELAXED);
  }
  std::uint32_t in_stream_begun() const {
    return __atomic_load_n(&doorbells().in_stream_begun, __ATOMIC_RELAXED);
  }
  Done in_stream_failed() const {
    return done_from(__atomic_load_n(&doorbells().in_stream_failed, __ATOMIC_RELAXED));
  }
  // What the client's library wrote down of that operation, which it may have called; nothing where
  // it did not, or of a later one at the same place.
  std::optional<NotedCall> called(LaunchPath path, std::uint32_t number) const {
    return read_note(pages().called[static_cast<std::uint32_t>(path)][number % kCallNotes], number);
  }
  Result<UniqueFd> export_fd() const;

 private:
  const HostPages& pages() const { return *reinterpret_cast<const HostPages*>(mapping_.data()); }
  const HostDoorbells& doorbells() const { return pages().doorbells; }

  UniqueFd fd_;
  SharedMapping mapping_;
};

}  // namespace arcomm
