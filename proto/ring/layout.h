// The bytes a client and the daemon share: one segment per session, drawn in proto/README.md.
//
//   page 0   SegmentHeader   geometry and identity, written by the daemon
//                            before the segment is handed out
//            ControlLines    positions and sleep flags, each on lines of its own
//   page 1.. requests        `slots` x WorkRequest   client -> daemon
//   then     completions     `slots` x Completion    daemon -> client
//
// Trust: the client can write every byte of the segment at any time. The daemon keeps the geometry
// in memory of its own, copies a slot once before it looks at it, and bounds every index that it
// reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/version.h"

namespace arcomm::ring {

inline constexpr std::uint64_t kSegmentMagic = 0x31474553'4d4f4341;  // "ACOMSEG1", little endian
inline constexpr std::uint16_t kRequestMagic = 0x5241;               // "AR"
inline constexpr std::uint16_t kPlanMagic = 0x5041;                  // "AP"
inline constexpr std::size_t kSlotBytes = 128;
inline constexpr std::size_t kLineBytes =
    128;  // two 64-byte lines: adjacent-line prefetch pulls pairs
inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::uint32_t kMinSlots = 8;
inline constexpr std::uint32_t kMaxSlots = 65536;

// When a completion is sent. Two words, because "completed" alone is ambiguous: Ordered means a
// stream may wait on it, Done means the bytes are there.
enum class Stage : std::uint8_t { None = 0, Ordered = 1, Done = 2 };

// An operation, or the start of a plan, of which all that the second line says was registered
// before. Both kinds of slot carry what every message needs in their first cache line, so that a
// message that needs no more moves one line; `stamp` there is also what publishes the slot.
//
// With kPlanMagic it asks for a plan itself: `plan` 0, to make one of what the second line says;
// else to remove that one. Where the segment's features have kPlansInRing.
struct alignas(kSlotBytes) WorkRequest {
  std::uint16_t magic = kRequestMagic;
  std::int16_t root = -1;          // Rank; -1 where the collective has none
  std::uint8_t collective = 0;     // Collective
  std::uint8_t dtype = 0;          // DType
  std::uint8_t op = 0;             // ReduceOp
  std::uint8_t codec = 0;          // codec_byte_of() an operation
  std::uint64_t ticket = 0;        // comes back in the completion
  std::uint64_t member = 0;        // MemberId bits
  std::uint64_t seq = 0;           // 0, 1, 2, ... per member and epoch
  std::uint64_t plan = 0;          // PlanId bits of what is started; 0: an operation
  std::uint64_t timeout_ns = 0;    // from admission; 0 means the daemon's default
  std::uint64_t submitted_ns = 0;  // CLOCK_MONOTONIC of the client, for the flight recorder only
  std::uint64_t stamp = 0;         // stamp_of(position), stored last
  // The second line, and what the operation is in the first: not of a plan's start.
  std::uint64_t send_buffer = 0;  // BufferId bits
  std::uint64_t send_offset_bytes = 0;
  std::uint64_t recv_buffer = 0;  // BufferId bits
  std::uint64_t recv_offset_bytes = 0;
  std::uint64_t send_count = 0;  // elements: OperationSpec's
  std::uint64_t recv_count = 0;
  // A large operation travels as several requests, cut alike on every rank. These two say which
  // part of what this is, so that parts of different operations never match; both count what is
  // sent. total_count 0: not cut.
  std::uint64_t total_count = 0;    // elements of the whole operation
  std::uint64_t first_element = 0;  // of this part, inside the whole

  bool uses_second_line() const { return plan == 0; }
};

struct alignas(kSlotBytes) Completion {
  std::uint64_t ticket = 0;
  std::uint64_t seq = 0;    // of a request with kPlanMagic: PlanId bits of what was made
  std::uint8_t code = 0;    // ErrorCode
  std::uint8_t reason = 0;  // Reason
  Stage stage = Stage::None;
  std::uint8_t reserved[1] = {};
  std::int32_t culprit_rank = -1;
  std::uint64_t elapsed_ns = 0;  // admission to completion
  std::uint64_t stamp = 0;       // stamp_of(position), stored last
  // Of an error only; runs on into the second line. Zero-terminated, cut where it does not fit.
  char detail[88] = {};

  bool uses_second_line() const { return code != 0; }
};

// SegmentHeader::features: what the daemon that made the segment takes. A client asks for nothing
// whose bit it does not find.
inline constexpr std::uint64_t kPlansInRing = 1;   // requests with kPlanMagic
inline constexpr std::uint64_t kErrorClasses = 2;  // kOfErrorClass in WorkRequest::codec

// What the daemon says of the whole session, in `SegmentHeader::session_state`.
enum class SessionState : std::uint32_t {
  Open = 0,
  Quarantined = 1,   // the ring protocol was broken; nothing more is read
  ShuttingDown = 2,  // no new requests; those in flight still end
  Closed = 3,        // the daemon let go of the session
};

struct SegmentHeader {
  std::uint64_t magic = kSegmentMagic;
  std::uint16_t abi_major = kRingAbiMajor;
  std::uint16_t abi_minor = kRingAbiMinor;
  std::uint32_t header_bytes = 0;  // offset of the first request slot
  std::uint32_t slot_bytes = kSlotBytes;
  std::uint32_t slots = 0;  // per ring, a power of two
  std::uint64_t features = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t session = 0;  // SessionId bits
  std::uint64_t reserved[8] = {};
};

// What the consumer of one direction tells its producer. Positions only grow; slot = position &
// (slots - 1). The producer's position needs no line: each slot says itself whether it is there.
struct ConsumerLines {
  alignas(kLineBytes) std::atomic<std::uint64_t> head;  // written by the consumer
  // 1 while the consumer sleeps or is about to. The producer that finds 1 wakes it. For completions
  // this is the futex word itself.
  alignas(kLineBytes) std::atomic<std::uint32_t> consumer_sleeps;
};

struct ControlLines {
  alignas(kLineBytes) std::atomic<std::uint32_t> session_state;  // SessionState, daemon -> client
  std::atomic<std::uint32_t> session_reason;                     // Reason
  std::atomic<std::uint32_t>
      oversubscribed;  // 1: more spinners than cores, so yield instead of spinning
  // 1: other processes use the daemon's core, so sleep instead of yielding.
  std::atomic<std::uint32_t> core_is_shared;
  // 1: the same as `oversubscribed` where the worker is none of the spinners, as clients' calls
  // meet.
  std::atomic<std::uint32_t> oversubscribed_by_clients;
  ConsumerLines requests;
  ConsumerLines completions;
};

struct SegmentPage {
  SegmentHeader header;
  ControlLines control;
};

static_assert(sizeof(WorkRequest) == kSlotBytes && std::is_trivially_copyable_v<WorkRequest>);
static_assert(sizeof(Completion) == kSlotBytes && std::is_trivially_copyable_v<Completion>);
static_assert(offsetof(WorkRequest, stamp) < kCacheLineBytes);
static_assert(offsetof(WorkRequest, send_buffer) == kCacheLineBytes &&
              offsetof(WorkRequest, first_element) + sizeof(std::uint64_t) == kSlotBytes);
static_assert(offsetof(Completion, stamp) < kCacheLineBytes);
// Clients of other releases find the words here.
static_assert(offsetof(ControlLines, oversubscribed_by_clients) == 16 &&
              offsetof(ControlLines, requests) == kLineBytes);
static_assert(sizeof(SegmentHeader) == 112 && std::is_trivially_copyable_v<SegmentHeader>);
static_assert(sizeof(SegmentPage) <= kPageBytes && std::is_standard_layout_v<SegmentPage>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// A slot carries the stamp of the message in it; one that still carries the stamp of the turn
// before has nothing new. The daemon stamps new slots as if a turn had gone before, so that no
// stamp is ever zero: a hole punched into the memory shows.
constexpr std::uint64_t stamp_of(std::uint64_t position, std::uint32_t slots) {
  return position + slots + 1;
}
constexpr std::uint64_t stamp_before(std::uint64_t position) {
  return position + 1;
}

constexpr std::uint64_t segment_bytes_for(std::uint32_t slots) {
  return kPageBytes + 2ull * slots * kSlotBytes;
}

}  // namespace arcomm::ring
