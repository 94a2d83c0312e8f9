// What is left of a previous daemon's session: a segment whose every byte its client could write.
// The next daemon ends it whatever is in it, answers no more than one turn of the ring, each answer
// where the client looks for it, and refuses what is no segment.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "daemon/session/kept_rings.h"
#include "proto/ring/segment.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)
using ring::SessionState;

constexpr std::uint32_t kSlots = ring::kMinSlots;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// A session in the middle of something: requests sent and read, some of them answered.
void use(ring::Segment& segment, std::uint8_t sent, std::uint8_t answered) {
  ring::Producer<ring::WorkRequest> submit(segment.requests());
  ring::Consumer<ring::WorkRequest> read(segment.requests());
  ring::Producer<ring::Completion> complete(segment.completions());
  ring::Consumer<ring::Completion> reap(segment.completions());
  for (std::uint8_t i = 0; i < sent % 32; ++i) {
    if (submit.push({}) != ring::Push::Done) break;
    ring::WorkRequest request;
    if (i >= answered % 32) continue;
    ring::Completion completion;
    if (read.pop(request) == ring::Pop::Done && complete.push({}) == ring::Push::Done && i % 2 == 0)
      static_cast<void>(reap.pop(completion));
  }
}

struct Change {
  std::uint16_t at, length;
};

// The client's bytes over the segment's, in pieces.
void scribble(std::byte* segment, std::size_t bytes, std::span<const std::uint8_t> input) {
  while (input.size() > sizeof(Change)) {
    Change change;
    std::memcpy(&change, input.data(), sizeof(change));
    input = input.subspan(sizeof(change));
    const std::size_t at = change.at % bytes;
    const std::size_t most = std::min({input.size(), bytes - at, std::size_t{change.length} % 512});
    std::memcpy(segment + at, input.data(), most);
    input = input.subspan(most);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  Result<ring::Segment> segment = ring::Segment::create(kSlots, SessionId{7, 1});
  if (!segment) return 0;
  use(*segment, data[0], data[1]);
  auto* bytes =
      reinterpret_cast<std::byte*>(&segment->control()) - offsetof(ring::SegmentPage, control);
  scribble(bytes, ring::segment_bytes_for(kSlots), {data + 2, size - 2});
  const Result<EndedRings> ended = end_rings(duplicate(segment->fd()));
  if (!ended || !ended->was_open) return 0;
  check(ended->unread <= kSlots && ended->unread <= ended->operations);
  check(ended->in_order || ended->operations == 0);
  check(segment->control().session_state == static_cast<std::uint32_t>(SessionState::Closed));
  const Result<EndedRings> again = end_rings(duplicate(segment->fd()));
  check(!again || !again->was_open);
  return 0;
}
