// One block's part in one small AllReduce: push, which never waits, and collect, which looks once
// or a few times. This is what the ways of lines.cuh (LL16) and packets.cuh (LL128) have in common:
// where things lie, and a header beside the data by which the ranks compare what they were asked
// for.
//
// Flags are the operation's number, which comes round after 2^32 operations; so that no stale flag
// can then be taken for a new one, now and then an operation wipes a piece of the half that is not
// in use.
#pragma once

#include <cstdint>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/resident/table.cuh"

namespace arcomm::device {

// Looks in vain before other members are looked at again: a few microseconds.
constexpr std::uint32_t kLooks = 8;
// Of as many operations two wipe, one for each half: 16 bytes per thread, and so all of it in far
// fewer operations than there are numbers.
constexpr std::uint32_t kWipeEvery = 128;

enum class Collected : std::uint32_t { Waiting, Done, Failed };

// How far a block came, and the rank it waits for (Waiting) or that asked for something else
// (Failed), as one word: what goes through memory would be read anew after each look at a door.
constexpr std::uint32_t to_word(Collected collected, std::uint32_t culprit) {
  return static_cast<std::uint32_t>(collected) << 16 | (culprit & 0xffffU);
}
constexpr Collected collected_from(std::uint32_t word) {
  return static_cast<Collected>(word >> 16);
}
constexpr std::uint32_t culprit_from(std::uint32_t word) {
  return word & 0xffffU;
}

class ResidentOperation {
 protected:
  __device__ __forceinline__ ResidentOperation(const ResidentMember& member, Pending& pending)
      : member_(member),
        pending_(pending),
        plan_(pending.entry.plan),
        number_(pending.number),
        // Never that of what was wiped; the other half has the number that it shares.
        flag_(pending.number == 0 ? 0xffff'ffffU : pending.number),
        units_(pending.units) {}

  // What all ranks must agree on, exactly.
  __device__ __forceinline__ std::uint32_t signature() const {
    return static_cast<std::uint32_t>(plan_.count) << 8 |
           static_cast<std::uint32_t>(plan_.dtype) << 4 | static_cast<std::uint32_t>(plan_.op);
  }
  // Where rank `from` leaves this at rank `at`.
  __device__ __forceinline__ uint4* header(std::uint32_t at, std::uint32_t from) const {
    return static_cast<uint4*>(member_.scratch[at]) +
           (half() * kMaxCudaRanks + from) * kResidentBlocks + blockIdx.x;
  }
  __device__ __forceinline__ unsigned char* slot(std::uint32_t at, std::uint32_t from) const {
    const int doublings = 32 - __clz(static_cast<int>(member_.ranks - 1));
    return half_at(at, half()) + from * (kResidentHalfBytes >> doublings);
  }

  // By all threads of the block, before the data.
  __device__ __forceinline__ void push_header() const {
    // No peer writes into the other half before it has seen what this block pushes now.
    if (blockIdx.x == 0 && number_ % kWipeEvery < 2) wipe();
    const std::uint32_t peer = threadIdx.x;
    if (peer < member_.ranks && peer != member_.rank)
      store_line(header(peer, member_.rank), {signature(), flag_, 0, flag_});
  }
  // What this thread looks at beside its data; where it is not `compares`, what it would like to
  // see.
  __device__ __forceinline__ bool compares(bool compared) const {
    return !compared && threadIdx.x < member_.ranks && threadIdx.x != member_.rank;
  }
  __device__ __forceinline__ uint4 look_at_header(bool compares) const {
    return compares ? load_line(header(member_.rank, threadIdx.x))
                    : uint4{signature(), flag_, 0, flag_};
  }
  __device__ __forceinline__ bool is_here(const uint4& line) const {
    return line.y == flag_ && line.w == flag_;
  }

  // By all threads of the block: have all of them seen all of a round? Waiting: the round begins
  // anew when the block looks again. Done: go on with it.
  __device__ __forceinline__ Collected vote(bool here, bool compares, const uint4& head,
                                            bool compared, std::uint32_t next,
                                            std::uint32_t& culprit) const {
    if (compares && is_here(head) && head.x != signature())
      pending_.dissenter = static_cast<int>(threadIdx.x);
    const bool all_here = __syncthreads_and(here) != 0;
    if (!compared && pending_.dissenter >= 0) {
      culprit = static_cast<std::uint32_t>(pending_.dissenter);
      return Collected::Failed;
    }
    if (all_here) return Collected::Done;
    if (threadIdx.x == 0) {
      pending_.next = next;
      pending_.agreed = compared;
    }
    culprit = first_of(here ? ~0U : culprit);
    return Collected::Waiting;
  }

  // Peer p is rank p, or p + 1 from our own on.
  __device__ __forceinline__ std::uint32_t rank_of(std::uint32_t peer) const {
    return peer + (peer >= member_.rank ? 1 : 0);
  }

  const ResidentMember& member_;
  Pending& pending_;
  const ResidentPlan& plan_;
  const std::uint32_t number_, flag_, units_;

 private:
  __device__ __forceinline__ std::uint32_t half() const { return number_ & 1U; }
  __device__ __forceinline__ unsigned char* half_at(std::uint32_t at, std::uint32_t half) const {
    return static_cast<unsigned char*>(member_.scratch[at]) + kResidentHeaderBytes +
           half * kResidentHalfBytes;
  }

  __device__ __forceinline__ void wipe() const {
    constexpr std::uint32_t kLines = kResidentHalfBytes / sizeof(uint4);
    const std::uint32_t line = number_ / kWipeEvery * kResidentThreads + threadIdx.x;
    auto* half_not_in_use = reinterpret_cast<uint4*>(half_at(member_.rank, half() ^ 1U));
    store_line(half_not_in_use + line % kLines, {0, 0, 0, 0});
    __threadfence();
    __syncthreads();
  }

  // The smallest of the threads' values.
  static __device__ __forceinline__ std::uint32_t first_of(std::uint32_t value) {
    __shared__ std::uint32_t first;
    if (threadIdx.x == 0) first = ~0U;
    __syncthreads();
    atomicMin(&first, value);
    __syncthreads();
    const std::uint32_t answer = first;
    __syncthreads();
    return answer;
  }
};

// Sums of the types that inference uses, between 2 or 4, are inlined; what is rare is a function of
// its own for each type, and pays for the call by saving registers.
template <typename Format, ReduceOp kOp>
inline constexpr bool kIsFrequent = kOp == ReduceOp::Sum && (sizeof(typename Format::Stored) == 2 ||
                                                             std::is_same_v<Format, Plain<float>>);

}  // namespace arcomm::device
