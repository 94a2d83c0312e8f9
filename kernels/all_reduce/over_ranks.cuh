// The step that all algorithms on lines have in common: they wait for what every rank has sent for
// one place and combine it, in rank order, as a wire format of codec/ says.
#pragma once

#include <cstdint>

#include "kernels/codec/concept.cuh"
#include "kernels/lines/ll128.cuh"
#include "kernels/lines/ll16.cuh"
#include "proto/types.h"

namespace arcomm::device {

// Each rank starts with another peer, so that they do not all send to one: hop is 1 to ranks - 1.
// Loops over hops are not unrolled: instructions that a small operation only jumps over have to be
// fetched too.
__device__ __forceinline__ std::uint32_t peer_of(std::uint32_t rank, std::uint32_t ranks,
                                                 std::uint32_t hop) {
  const std::uint32_t peer = rank + hop;
  return peer < ranks ? peer : peer - ranks;
}

// Combines this thread's line: `mine`, and what the others leave at place(rank). It looks at kBatch
// of them together. False: the wait failed.
template <LineCodec Codec, ReduceOp kOp, std::uint32_t kBatch, typename Place, typename Watch>
__device__ __forceinline__ bool reduce_line(std::uint32_t rank, std::uint32_t ranks, uint2 mine,
                                            Place place, std::uint32_t flag,
                                            WaitBudget<Watch>& budget, uint2& out) {
  typename Codec::template LineResult<kOp> result;
#pragma unroll 1
  for (std::uint32_t first = 0; first < ranks; first += kBatch) {
    const auto sends = [&](std::uint32_t from) { return from < ranks && from != rank; };
    Ll16Line lines[kBatch];
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < kBatch; ++i) {
        if (sends(first + i)) lines[i].load(place(first + i));
      }
      std::uint32_t missing = ranks;
#pragma unroll
      for (std::uint32_t i = kBatch; i-- > 0;) {
        if (sends(first + i) && !lines[i].is_of(flag)) missing = first + i;
      }
      if (missing == ranks) break;
      if (!budget.goes_on(missing)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t from = first + i;
      if (from >= ranks) continue;
      result.combine_next(from == rank ? mine : lines[i].data(), from == 0);
    }
  }
  out = result.as_output(ranks);
  return true;
}

// The same for a packet, called by all lanes of a warp, each with its part. `out` is
// finish(result): its as_output or as_packet.
template <PacketCodec Codec, ReduceOp kOp, std::uint32_t kBatch, typename Place, typename Watch,
          typename Finish, typename Out>
__device__ __forceinline__ bool reduce_packet(std::uint32_t rank, std::uint32_t ranks,
                                              const typename Codec::Packet& mine, Place place,
                                              std::uint32_t flag, WaitBudget<Watch>& budget,
                                              Finish finish, Out& out) {
  constexpr std::uint32_t kNobody = 0xffff'ffffU;
  typename Codec::template PacketResult<kOp> result;
#pragma unroll 1
  for (std::uint32_t first = 0; first < ranks; first += kBatch) {
    const auto sends = [&](std::uint32_t from) { return from < ranks && from != rank; };
    Ll128Packet packets[kBatch];
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < kBatch; ++i) {
        if (sends(first + i)) packets[i].load(place(first + i));
      }
      std::uint32_t missing = kNobody;
#pragma unroll
      for (std::uint32_t i = kBatch; i-- > 0;) {
        if (sends(first + i) && !packets[i].is_of(flag)) missing = first + i;
      }
      missing = __reduce_min_sync(kWarp, missing);
      if (missing == kNobody) break;
      if (!budget.is_due()) continue;
      const bool gives_up = lane_of_thread() == 0 && !budget.looks_around(missing);
      if (__any_sync(kWarp, gives_up)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t from = first + i;
      if (from >= ranks) continue;
      result.combine_next(from == rank ? mine : packets[i].data(), from == 0);
    }
  }
  out = finish(result);
  return true;
}

}  // namespace arcomm::device
