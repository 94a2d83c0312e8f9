// As all_reduce/one_shot_ll16.cu, for at most one line per thread: every rank stores its input into
// every peer's exchange, 8 bytes of data and two copies of the flag in one store.
#pragma once

#include <algorithm>

#include "kernels/device/element.cuh"
#include "kernels/in_stream/block_epoch.cuh"

namespace arcomm::device {

template <typename Format>
struct Ll16Line {
  using Stored = typename Format::Stored;
  static constexpr std::uint32_t kCount = Pack<Format, 8>::kCount;
  union Elements {
    Stored each[kCount];
    uint2 whole;
  };

  // This thread's.
  __device__ __forceinline__ explicit Ll16Line(const InStreamCall& call)
      : first(std::uint64_t{blockIdx.x * kInStreamThreads + threadIdx.x} * kCount),
        count(call.count),
        exists(threadIdx.x < kInStreamThreads && first < call.count) {}

  __device__ __forceinline__ Elements read(const void* send) const {
    const Stored* from = static_cast<const Stored*>(send) + first;
    Elements out{};
    if (first + kCount <= count && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
      out.whole = load_past_l1(reinterpret_cast<const uint2*>(from));
      return out;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (first + i < count) out.each[i] = load_past_l1(from + i);
    }
    return out;
  }
  __device__ __forceinline__ void write(void* recv, const Elements& out) const {
    Stored* to = static_cast<Stored*>(recv) + first;
    if (first + kCount <= count && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<uint2*>(to) = out.whole;
      return;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (first + i < count) to[i] = out.each[i];
    }
  }

  std::uint64_t first, count;
  bool exists;
};

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ bool combine_lines(const InStreamCall& call, BlockEpoch& epoch,
                                              InStreamBudget& budget,
                                              const typename Ll16Line<Format>::Elements& mine,
                                              typename Ll16Line<Format>::Elements& out) {
  const std::uint32_t flag = epoch.flag();
  Pack<Format, 8> result;
#pragma unroll 1
  for (std::uint32_t first = 0; first < call.ranks; first += kBatch) {
    const auto sends = [&](std::uint32_t rank) { return rank < call.ranks && rank != call.rank; };
    uint4 seen[kBatch];
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < kBatch; ++i) {
        if (sends(first + i))
          seen[i] = load_line(epoch.ll16_lines(call.rank, first + i) + threadIdx.x);
      }
      std::uint32_t missing = call.ranks;
#pragma unroll
      for (std::uint32_t i = kBatch; i-- > 0;) {
        if (sends(first + i) && (seen[i].y != flag || seen[i].w != flag)) missing = first + i;
      }
      if (missing == call.ranks) break;
      if (!budget.goes_on(missing)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t rank = first + i;
      if (rank >= call.ranks) continue;
      typename Ll16Line<Format>::Elements theirs = mine;
      if (rank != call.rank) theirs.whole = {seen[i].x, seen[i].z};
      if (rank == 0) {
        result.widen(theirs.each);
      } else {
        result.template combine_next<kOp>(theirs.each);
      }
    }
  }
  result.template store_to<kOp>(out.each, call.ranks);
  return true;
}

template <typename Format, ReduceOp kOp>
__device__ __forceinline__ void one_shot_ll16(const InStreamCall& call) {
  __shared__ BlockState state;
  const Ll16Line<Format> line(call);
  typename Ll16Line<Format>::Elements mine{}, out{};
  BlockEpoch epoch(call, state);
  if (line.exists) mine = line.read(call.send);
  if (!epoch.begins()) return epoch.leave();
  if (epoch.is_watcher()) {
    epoch.agree();
  } else if (line.exists) {
    const std::uint32_t flag = epoch.flag();
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop) {  // each rank starts with another peer
      store_line(epoch.ll16_lines(peer_of(call, hop), call.rank) + threadIdx.x,
                 {mine.whole.x, flag, mine.whole.y, flag});
    }
    InStreamBudget budget({call, state});
    if (call.ranks == 2) {
      combine_lines<Format, kOp, 2>(call, epoch, budget, mine, out);
    } else {
      combine_lines<Format, kOp, 4>(call, epoch, budget, mine, out);
    }
  }
  const bool agree = epoch.all_agree();
  epoch.trigger_dependents();
  if (agree && line.exists) line.write(call.recv, out);
  epoch.leave();
}

}  // namespace arcomm::device
