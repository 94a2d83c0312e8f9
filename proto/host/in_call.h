// The memory in which the ranks of a communicator on one host hand each other small operations
// within their own calls, without the daemon's worker: the twin of proto/gpu/exchange.h. Which
// operations go this way stands in the communicator's launch table (LaunchPath::InCall).
//
// The daemon makes the memory, sized and sealed, and every rank's process maps it whole. A rank
// copies what it sends into its own area, or beside its head, and says so in its head; who has
// found the heads of all, and all alike, combines what lies there, in the order of the ranks, by
// itself.
//
// It is a short cut and nothing else. Whatever does not come as it should, and soon (a rank is
// late, or asks for something else, or has gone, or calls asynchronously), the operation goes
// through the worker like any other, which knows all ranks, their deadlines and their ends. So that
// an operation is never half of either, it has one fate, which all ranks learn
// (client/src/host/in_call/in_call_meeting.h says how).
//
// Operations are numbered from 1 by each rank, those that the worker runs among them.
//
// Trust: the members of a communicator can write all of it, and so spoil each other's sums, as each
// could by its own input, or make their operations slow. No address, no size and no index is read
// from it. The daemon reads counters for people from it and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm {

// What the library combines in calls, by bit_of(): all types and operations, but no more.
inline constexpr std::uint8_t kInCallCodecs = bit_of(Codec::None);
inline constexpr std::uint8_t kInCallCollectives = bit_of(Collective::AllReduce);
inline constexpr std::uint32_t kMaxInCallRanks = 8;
// That one rank sends.
inline constexpr std::uint64_t kMaxInCallBytes = std::uint64_t{64} << 10;
// Pairs of lines: the processor fetches neighbours.
inline constexpr std::size_t kInCallLine = 128;
// So much lies beside its head, with which it then travels. It fills the pair of lines.
inline constexpr std::size_t kInCallBytesBesideHead = kInCallLine - 3 * sizeof(std::uint64_t);

// Of one operation of one rank. `number` is stored last.
struct alignas(kInCallLine) InCallHead {
  std::atomic<std::uint64_t> number;
  std::atomic<std::uint64_t> what;  // in_call_word(): type, operation, collective, codec
  std::atomic<std::uint64_t> count;
  std::byte part[kInCallBytesBesideHead];  // what it sends, where that fits
};
static_assert(sizeof(InCallHead) == kInCallLine);

struct InCallRank {
  // By turns: the next operation but one that meets here takes the same, when all are through.
  InCallHead heads[2];
  // Seldom written, and read by whoever waits and whoever has come.
  alignas(kInCallLine) std::atomic<std::uint64_t> by_worker;  // the last that it sent to the worker
  std::atomic<std::uint32_t> sleeps;  // 1 while it does, or is about to; the futex word
  // The last for which it has found everybody. Read where a fate is in doubt.
  alignas(kInCallLine) std::atomic<std::uint64_t> found_all;
  std::atomic<std::uint64_t> operations, bytes;  // that it has run here; for people
};

struct InCallControl {
  // The last operation about whose fate a rank is in doubt: it goes by `fates`, as all before it do
  // for who has not ended them.
  alignas(kInCallLine) std::atomic<std::uint64_t> contested;
  std::atomic<std::uint64_t> fates[4];  // in_call_fate(), by number
  InCallRank ranks[kMaxInCallRanks];
};
inline constexpr std::uint64_t kInCallControlBytes = 8192;
static_assert(sizeof(InCallControl) <= kInCallControlBytes &&
              std::is_standard_layout_v<InCallControl> &&
              std::atomic<std::uint64_t>::is_always_lock_free);

enum class InCallFate : std::uint8_t { InCall = 1, Worker = 2 };
constexpr std::uint64_t in_call_fate(std::uint64_t number, InCallFate fate) {
  return number << 2 | static_cast<std::uint64_t>(fate);
}

// Where what the ranks send lies, behind the control pages. Each rank has two areas, used by turns
// as its heads are, of whole pages: each page costs about a microsecond to make, and another in
// each process that maps it, so there are no more than the communicator's launch table has use for.
class InCallLayout {
 public:
  // most_bytes: LaunchTable::most_in_call_bytes(), that one rank sends.
  constexpr InCallLayout(std::uint32_t ranks, std::uint64_t most_bytes)
      : ranks_(ranks), area_bytes_((most_bytes + kPage - 1) / kPage * kPage) {}

  constexpr std::uint32_t ranks() const { return ranks_; }
  constexpr std::uint64_t area_offset(std::uint32_t rank, std::uint32_t turn) const {
    return kInCallControlBytes + (2ull * rank + turn) * area_bytes_;
  }
  constexpr std::uint64_t bytes() const { return area_offset(ranks_, 0); }

 private:
  static constexpr std::uint64_t kPage = 4096;

  std::uint32_t ranks_;
  std::uint64_t area_bytes_;
};

// All zeros, sealed, every page there.
Result<UniqueFd> create_in_call_memory(const InCallLayout& layout);
// The first so many bytes.
Result<SharedMapping> map_in_call_memory(int fd, std::uint64_t bytes);

}  // namespace arcomm
