// How many SMs of a GPU each communicator may fill with in-stream operations. Pure.
//
// A block waits for other GPUs, which may have begun with another communicator's operation: so the
// blocks of all in-stream communicators of a GPU must find room there side by side, beside what
// else stays on it. Each counts as an SM, though two of one_shot_ll16 fit on one: where they begin
// first they spread, and a block that fills an SM finds none that is empty.
//
// The first communicator gets most of the SMs, the second a small share. Whoever wants a third and
// a fourth one to have a small share, too, gives up SMs of the first
// (gpu.in_stream_communicators). What is left is dealt out in tiny shares, for small operations; on
// 132 SMs that is one SM, and one more communicator yet takes a tiny share of the first's. In
// whatever order they come and go, the shares together are never more than there is. One whose
// ranks ask for fewer SMs (most_sms) has no more of a large or a small share, and others the rest.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/gpu/exchange.h"

namespace arcomm {

inline constexpr std::uint32_t kResidentSms = 10;  // the resident grid's
// Left alone by the first shares: beside the grid's, one that is launched operations' whatever
// happens, and one for gates, what posts and what waits. Tiny shares may take that: those are
// small.
inline constexpr std::uint32_t kSparedSms = kResidentSms + 2;
// A small share is the least with which operations between two H100 take at most 1.25 times as long
// as with the largest, at every size (tests/gpu/bench/README.md).
inline constexpr std::uint32_t kSmallShare = 25, kTinyShare = 6;
inline constexpr std::uint32_t kFewestInStream = 2, kMostInStream = 8;  // communicators of a GPU
inline constexpr std::uint32_t kMostLargeAndSmall = 4;  // further ones have tiny shares
// Of fewer SMs nobody gets any.
inline constexpr std::uint32_t kFewestInStreamSms = kSparedSms + 2 * kSmallShare;

// What other communicators have of a GPU.
struct InStreamTaken {
  std::uint32_t large = 0;          // and small shares
  std::uint32_t communicators = 0;  // that have those
  std::uint32_t tiny = 0;

  constexpr void add(std::uint32_t blocks, bool is_tiny);
  friend bool operator==(const InStreamTaken&, const InStreamTaken&) = default;
};

constexpr void InStreamTaken::add(std::uint32_t blocks, bool is_tiny) {
  if (blocks == 0) return;
  if (is_tiny) {
    tiny += blocks;
  } else {
    large += blocks;
    ++communicators;
  }
}

// One SM moves some 30 GB/s over its links: what is longer than this for each SM of a tiny share is
// launched as fast, in more blocks.
inline constexpr std::uint64_t kTinyShareBytes = 16ull * 1024;
constexpr std::uint64_t most_bytes_of_tiny_share(std::uint32_t blocks) {
  return blocks * kTinyShareBytes;
}

// The shares of one GPU. communicators: how many are meant to have one.
class InStreamShares {
 public:
  constexpr InStreamShares(std::uint32_t sms, std::uint32_t communicators = kFewestInStream) {
    if (sms < kFewestInStreamSms) return;
    all_ = sms - kResidentSms - 1;
    const std::uint32_t first = sms - kSparedSms;
    const std::uint32_t wanted = std::clamp(communicators, kFewestInStream, kMostInStream);
    meant_ = std::min(wanted, kMostLargeAndSmall);
    first_ = first - std::min((wanted - meant_) * kTinyShare, first - 2 * kSmallShare);
    meant_ = std::min(meant_, first_ / kSmallShare);
    large_ = std::min(kMaxInStreamBlocks, first_ - (meant_ - 1) * kSmallShare);
  }

  // Of one more communicator, whose ranks ask for `most` SMs at most: large, if that leaves all
  // that are meant to come a small share; or small; or 0.
  constexpr std::uint32_t next(InStreamTaken taken, std::uint32_t most = kMaxInStreamBlocks) const {
    const std::uint32_t rest = std::min(less(first_, taken.large), left(taken));
    const std::uint32_t others = less(meant_, taken.communicators + 1) * kSmallShare;
    const std::uint32_t large = std::min(large_, most), small = std::min(kSmallShare, most);
    if (large != 0 && rest >= large + others) return large;
    return rest >= small ? small : 0;
  }
  // For one to whom next() gives none on one of its GPUs; 0: nor this.
  constexpr std::uint32_t next_tiny(InStreamTaken taken) const {
    return std::min({kTinyShare, less(all_ - for_first(), taken.tiny), left(taken)});
  }
  constexpr std::uint32_t all() const { return all_; }

 private:
  static constexpr std::uint32_t less(std::uint32_t from, std::uint32_t much) {
    return from - std::min(from, much);
  }
  constexpr std::uint32_t left(InStreamTaken taken) const {
    return less(all_, taken.large + taken.tiny);
  }
  // What large and small shares make use of, if they come first.
  constexpr std::uint32_t for_first() const {
    InStreamTaken taken;
    while (const std::uint32_t share = next(taken)) taken.add(share, false);
    return taken.large;
  }

  std::uint32_t all_ = 0, first_ = 0, large_ = 0;
  std::uint32_t meant_ = 0;  // to have a large or a small share
};

}  // namespace arcomm
