// How many SMs of a GPU each communicator may fill with in-stream operations. Pure.
//
// A block waits for other GPUs, which may have begun with another communicator's operation: so the
// blocks of all in-stream communicators of a GPU must find room there side by side, beside what
// else stays on it. Each counts as an SM, though two of one_shot_ll16 fit on one: where they begin
// first they spread, and a block that fills an SM finds none that is empty.
//
// The first communicator gets most of the SMs, the second a small share. What is left is dealt out
// in tiny shares, for small operations; on 132 SMs that is one SM. Whoever wants more communicators
// to have one gives up SMs of the first (gpu.in_stream_communicators). In whatever order they come
// and go, the shares together are never more than there is.
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
inline constexpr std::uint32_t kSmallShare = 24, kTinyShare = 6;
inline constexpr std::uint32_t kFewestInStream = 2, kMostInStream = 8;  // communicators of a GPU
// Of fewer SMs nobody gets any.
inline constexpr std::uint32_t kFewestInStreamSms = kSparedSms + 2 * kSmallShare;

// What other communicators have of a GPU.
struct InStreamTaken {
  std::uint32_t large = 0;  // and small shares
  std::uint32_t tiny = 0;
  friend bool operator==(const InStreamTaken&, const InStreamTaken&) = default;
};

constexpr bool is_tiny_share(std::uint32_t blocks) {
  return blocks < kSmallShare;
}

// One SM moves some 30 GB/s over its links: what is longer than this for each of them goes another
// way as fast.
inline constexpr std::uint64_t kTinyShareBytes = 16ull * 1024;
constexpr std::uint64_t most_bytes_of_share(std::uint32_t blocks) {
  return is_tiny_share(blocks) ? blocks * kTinyShareBytes : ~std::uint64_t{0};
}

// The shares of one GPU. communicators: how many are meant to have one.
class InStreamShares {
 public:
  constexpr InStreamShares(std::uint32_t sms, std::uint32_t communicators = kFewestInStream) {
    if (sms < kFewestInStreamSms) return;
    all_ = sms - kResidentSms - 1;
    const std::uint32_t first = sms - kSparedSms;
    const std::uint32_t wanted =
        (std::clamp(communicators, kFewestInStream, kMostInStream) - kFewestInStream) * kTinyShare;
    first_ = first - std::min(wanted, first - 2 * kSmallShare);
    large_ = std::min(kMaxInStreamBlocks, first_ - kSmallShare);
  }

  // Of one more communicator: large, and leaves a small share; or small; or 0.
  constexpr std::uint32_t next(InStreamTaken taken) const {
    const std::uint32_t rest = std::min(less(first_, taken.large), left(taken));
    return large_ != 0 && rest >= large_ ? large_ : rest >= kSmallShare ? kSmallShare : 0;
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
    std::uint32_t used = 0;
    while (large_ != 0 && first_ - used >= large_) used += large_;
    while (first_ - used >= kSmallShare) used += kSmallShare;
    return used;
  }

  std::uint32_t all_ = 0, first_ = 0, large_ = 0;
};

}  // namespace arcomm
