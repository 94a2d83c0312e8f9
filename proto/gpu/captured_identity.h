// Which of the operations that graphs hold an operation is. Graphs are replayed in any order, also
// in another one on each rank, and two operations of one shape would then be mixed in silence. So
// each has an identity, the same on all ranks, as these capture the same operations of a
// communicator in the same order; it travels with the operation on every launch path, and two that
// meet and differ in it fail with Reason::Reordered. Values only.
#pragma once

#include <cstdint>

namespace arcomm {

// What a doorbell (device_mailbox.h) has left beside a number and a plan.
inline constexpr std::uint32_t kIdentityBits = 18;
// Of an operation that no graph holds; those are in the order of the calls.
inline constexpr std::uint32_t kNoIdentity = 0;
// Of the n-th that a member captures, from 0. A quarter of a million come before the first identity
// comes round.
constexpr std::uint32_t identity_of_captured(std::uint64_t n) {
  constexpr std::uint64_t kIdentities = (std::uint64_t{1} << kIdentityBits) - 1;
  return static_cast<std::uint32_t>(1 + n % kIdentities);
}

}  // namespace arcomm
