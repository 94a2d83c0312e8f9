// One operation from the call to its result: what the caller asked, how it is cut, how far it is.
//
// Life: TicketTable::open() -> filled by its caller -> Submission::submit() -> done ->
// TicketTable::spend(). Thread: the caller's until submitted; then the fields under "progress"
// belong to the session's Submission (its mutex), and `outcome` to whoever spends the ticket after
// `done`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/src/host/collective_call.h"
#include "client/src/host/memory/buffer.h"
#include "client/src/host/memory/staging.h"
#include "client/src/host/segmentation.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

struct Member;

inline constexpr std::uint64_t kNoSeq = UINT64_MAX;

// Where one side of the operation lies, when the daemon can reach it. buffer is null where it is
// staged.
struct SharedRange {
  std::shared_ptr<Buffer> buffer;
  BufferId id;
  std::uint64_t offset_bytes = 0;
};

// A staging slot of the operation's and the segment that is in it.
struct StagedSegment {
  enum class State : std::uint8_t { Empty, Filled, InFlight, Reduced };
  State state = State::Empty;
  StagingSlot* slot = nullptr;
  std::uint64_t segment = 0;
};

struct Outcome {
  Error error{ErrorCode::Ok, Reason::None, "", -1};
  std::uint64_t seq = kNoSeq;
};

struct Operation {
  std::atomic<std::uint64_t> ticket{0};  // 0 while nobody may name it
  std::atomic<bool> done{false};         // release after `outcome`
  std::atomic<bool> submitted{false};
  std::atomic<bool> claimed{false};  // a thread waits for the ticket; a second one is refused
  std::uint32_t index = 0;           // in the ticket table

  // Asked.
  std::shared_ptr<Member> member;
  CollectiveCall call;  // checked
  Segmentation cut;
  SharedRange send, recv;
  PlanId plan;  // valid: started instead of described
  Deadline deadline{Deadline::Clock::time_point{}};

  // Progress.
  std::array<StagedSegment, 2> staged;  // which the segments use in turn
  unsigned num_staged = 0;              // 0: nothing is staged
  std::uint64_t next_fill = 0;          // segment to copy in next
  std::uint64_t next_submit = 0;        // segment to submit next
  std::uint64_t finished = 0;           // segments whose result is where the caller wants it
  std::uint64_t outstanding = 0;        // submitted and not completed
  bool wants_copy = false;              // is in the list of operations with copying to do
  bool copying = false;                 // a thread copies for it, outside the lock
  bool abandoned = false;               // its ticket is spent: recycled when nothing is outstanding
  Outcome outcome;

  bool stages_send() const { return call.send_count != 0 && !send.buffer; }
  bool stages_recv() const { return call.recv_count != 0 && !recv.buffer; }
  StagedSegment& staged_for(std::uint64_t segment) { return staged[segment % num_staged]; }
  const StagedSegment& staged_for(std::uint64_t segment) const {
    return staged[segment % num_staged];
  }
  bool failed() const { return outcome.error.code != ErrorCode::Ok; }
  std::size_t segment_bytes(std::uint64_t segment) const {
    return cut.elements(segment) * call.element_bytes();
  }
  std::uint64_t segment_offset(std::uint64_t segment) const {
    return cut.first_element(segment) * call.element_bytes();
  }
};

}  // namespace arcomm::client
