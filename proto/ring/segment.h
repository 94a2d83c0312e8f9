// A session's shared segment: a memfd whose size is sealed, mapped. Made by the daemon, opened by
// the client. Ownership: the object owns its mapping and, on the creating side, the descriptor.
// Move-only. No thread of its own.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/ring/consumer.h"
#include "proto/ring/layout.h"
#include "proto/ring/producer.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm::ring {

class Segment {
 public:
  // slots: a power of two in [kMinSlots, kMaxSlots]. The size is sealed against shrinking, growing
  // and unsealing, so that no holder can make the other fault. features: layout.h.
  static Result<Segment> create(std::uint32_t slots, SessionId session, std::uint64_t features = 0);
  // Checks the seals, the size, magic, version and geometry before anything else is believed. Takes
  // the descriptor.
  static Result<Segment> open(UniqueFd fd);

  int fd() const { return fd_.get(); }
  std::uint32_t slots() const { return slots_; }
  std::uint64_t features() const { return features_; }
  ControlLines& control() const;
  RingView<WorkRequest> requests() const;
  RingView<Completion> completions() const;

 private:
  Segment(UniqueFd fd, SharedMapping mapping, std::uint32_t slots, std::uint64_t features)
      : fd_(std::move(fd)), mapping_(std::move(mapping)), slots_(slots), features_(features) {}

  UniqueFd fd_;
  SharedMapping mapping_;
  // Private copies: the header in shared memory is not asked again.
  std::uint32_t slots_ = 0;
  std::uint64_t features_ = 0;
};

}  // namespace arcomm::ring
