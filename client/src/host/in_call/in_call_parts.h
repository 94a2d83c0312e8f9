// What the ranks of an operation send, where the others find it (proto/host/in_call.h): copied
// there, and combined from there. Who may do which, and when, is said by InCallMeeting. Thread: one
// at a time for each rank. Ownership: the memory outlives it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/src/host/collective_call.h"
#include "kernels/args.h"
#include "proto/host/in_call.h"

namespace arcomm::client {

class InCallParts {
 public:
  // around_caches: parts are copied so, where no cache is between this core and the peers'.
  InCallParts(std::byte* memory, const InCallLayout& layout, std::uint32_t rank,
              bool around_caches);

  // Before the rank comes. turn: as of InCallMeeting.
  void put(const CollectiveCall& call, std::uint32_t turn) const;
  // Once all have come.
  void combine(const CollectiveCall& call, std::uint32_t turn);

 private:
  // Where what a rank sends lies: the same place for all ranks of an operation.
  std::byte* part(std::uint32_t rank, std::uint32_t turn, std::uint64_t bytes) const {
    return bytes <= kInCallBytesBesideHead
               ? reinterpret_cast<InCallControl*>(memory_)->ranks[rank].heads[turn].part
               : memory_ + layout_.area_offset(rank, turn);
  }

  std::byte* const memory_;
  const InCallLayout layout_;
  const std::uint32_t rank_;
  const bool around_caches_;
  AllReduceArgs args_;  // kept, for it is long
};

}  // namespace arcomm::client
