// The words through which a client's GPU and the daemon hand operations over, without a CPU in
// between for small ones. Drawn in proto/README.md.
//
//   DeviceMailbox  one per member, in the memory of its GPU; allocated by the daemon, mapped by
//                  both. Memory comes in whole granules (2 MiB): all of it is exported, the daemon
//                  clears and uses the first kMailboxBytes, the rest is the client's own.
//   HostDoorbells  one per member, in host memory: a sealed memfd (HostPages) that the client
//                  registers with its GPU and the daemon's worker reads. The client's GPU writes
//                  the doorbells, its host what it calls.
//
// An operation is a plan (buffers, count, type, operation: registered and checked beforehand) and a
// start of it: `posted` grows by one on the device, so that a start replayed from a graph is a new
// operation, and the doorbell says which plan it is, and which of the operations that graphs hold:
// what ranks take for different ones does not run. The client's stream then waits for the same
// number in `done`. Two paths, each with numbers of its own: Resident operations are taken from the
// doorbell by a kernel of the daemon that is already there, Launched ones by the daemon's worker,
// which launches a kernel. Where it has launched speculatively for the very doorbell, that
// kernel waits for that word in the mailbox, so the client writes it there, and then in
// HostDoorbells. Which path a plan takes all ranks know from the same launch table.
//
// Trust: the client can write every byte at any time. The daemon reads HostPages only: a plan's
// index is bounded and looked up in the daemon's own memory, a number that is not the next one ends
// the session. A launched doorbell in the mailbox only lets a kernel begin that the daemon had
// checked; it may also be the daemon that writes it, to be rid of one. What it writes there it
// never reads back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/gpu/call_note.h"
#include "proto/gpu/captured_identity.h"
#include "proto/types.h"

namespace arcomm {

// A start that waits for earlier ones of its own rank, on other streams of the caller's, gives up
// after so many times its timeout: they may wait for the caller's kernels, and have deadlines of
// their own once they have begun.
inline constexpr std::uint64_t kTimeoutsForOwnOrder = 10;

inline constexpr std::uint32_t kMaxDevicePlans = 16384;  // of one GPU; PlanId::index stays below
// Of one GPU at a time: communicators of several ranks, in its resident grid.
inline constexpr std::uint32_t kMaxDeviceMembers = 32;
inline constexpr std::uint64_t kMailboxBytes = 4096;
inline constexpr std::uint64_t kMaxResidentBytes = 128ull * 1024;  // what the grid's scratch holds
// What the grid's kernel is compiled for, by bit_of(): all types and operations, but no more.
inline constexpr std::uint8_t kResidentCodecs = bit_of(Codec::None);
inline constexpr std::uint8_t kResidentCollectives = bit_of(Collective::AllReduce);

// Which path an operation takes: the communicator's launch table says (proto/gpu/launch_table.h).
// The first two go through the mailbox, each with words of its own. Alone: there is no other rank,
// and the client's stream copies.
// InCall is the host's alone: proto/host/in_call.h.
enum class LaunchPath : std::uint32_t {
  Resident = 0,
  Launched = 1,
  InStream = 2,
  Alone = 3,
  InCall = 4
};
inline constexpr std::uint32_t kLaunchPaths = 2;  // of a mailbox

// 8 bytes, written and read whole. number: 1, 2, 3, ... per path, modulo 2^32; 0 before the first.
struct Doorbell {
  std::uint32_t number = 0;
  std::uint32_t plan = 0;                // PlanId::index
  std::uint32_t identity = kNoIdentity;  // captured_identity.h
};
static_assert(std::uint64_t{kMaxDevicePlans} << kIdentityBits == std::uint64_t{1} << 32);
constexpr std::uint64_t to_word(Doorbell doorbell) {
  return (std::uint64_t{doorbell.identity} * kMaxDevicePlans + doorbell.plan) << 32 |
         doorbell.number;
}
// The plan is below kMaxDevicePlans, whatever the word.
constexpr Doorbell doorbell_from(std::uint64_t word) {
  const auto high = static_cast<std::uint32_t>(word >> 32);
  return {.number = static_cast<std::uint32_t>(word),
          .plan = high % kMaxDevicePlans,
          .identity = high / kMaxDevicePlans};
}

// Written by the daemon when the operation has ended: its number, how, and whose fault it was.
struct Done {
  std::uint32_t number = 0;
  std::uint8_t code = 0;    // ErrorCode
  std::uint8_t reason = 0;  // Reason
  std::int16_t culprit_rank = -1;
};
constexpr std::uint64_t to_word(Done done) {
  return std::uint64_t{static_cast<std::uint16_t>(done.culprit_rank)} << 48 |
         std::uint64_t{done.reason} << 40 | std::uint64_t{done.code} << 32 | done.number;
}
constexpr Done done_from(std::uint64_t word) {
  return {.number = static_cast<std::uint32_t>(word),
          .code = static_cast<std::uint8_t>(word >> 32),
          .reason = static_cast<std::uint8_t>(word >> 40),
          .culprit_rank = static_cast<std::int16_t>(word >> 48)};
}

struct MailboxPath {
  alignas(128) std::uint64_t doorbell;  // client -> daemon
  // daemon -> client; and the client's host, for streams that wait by memory operations and that
  // nobody else will let go.
  alignas(128) std::uint64_t done;
  alignas(128) std::uint32_t posted;  // the client's own count of starts
};

struct DeviceMailbox {
  MailboxPath paths[kLaunchPaths];
  // Not 0: a Done word; the communicator is over, and whoever waits here stops waiting. Written by
  // the daemon when it revokes, by the client's host when the daemon is lost or answers nothing.
  alignas(128) std::uint64_t closed;
  // The first operation that did not end well, a Done word; written by the client's kernels, for
  // the client's host.
  alignas(128) std::uint64_t failed;
};

struct HostDoorbells {
  alignas(128) std::uint64_t launched;         // Doorbell, written after the mailbox's
  alignas(128) std::uint32_t resident_posted;  // tells a daemon whose resident kernel has left
  std::uint32_t in_stream_begun;   // in-stream operations that this rank has begun: exchange.h
  std::uint64_t in_stream_failed;  // the first of them that did not end well, a Done word
};
// The memfd: the doorbells, and what the client's host writes down for the worker alone.
struct HostPages {
  HostDoorbells doorbells;
  CallNote called[kNotedPaths][kCallNotes];  // by LaunchPath and number
};

static_assert(sizeof(DeviceMailbox) <= kMailboxBytes && std::is_standard_layout_v<DeviceMailbox>);
static_assert(offsetof(DeviceMailbox, closed) == 2 * sizeof(MailboxPath));
static_assert(sizeof(MailboxPath) == 384 && sizeof(HostDoorbells) == 256);
static_assert(offsetof(HostPages, doorbells) == 0 && std::is_standard_layout_v<HostPages>);

}  // namespace arcomm
