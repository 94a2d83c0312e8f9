// One block's part in one small AllReduce: push, which never waits, and collect, which looks once
// or a few times. The lines are LL16's, with a header beside them by which the ranks compare what
// they were asked for.
//
// Flags are the operation's number, which comes round after 2^32 operations. A stale line could
// then be taken for a new one, so now and then an operation wipes a piece of the half that is not
// in use, lines and headers. No peer writes there before it has seen what this rank pushes
// afterwards.
#pragma once

#include <cstdint>

#include "kernels/codec/plain.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/lines/ll16.cuh"
#include "kernels/resident/table.cuh"

namespace arcomm::device {

// Looks in vain before other members are looked at again: a few microseconds.
constexpr std::uint32_t kLooks = 8;
// Two operations of so many wipe, one for each half, a line per thread: everything is wiped in far
// fewer operations than there are numbers.
constexpr std::uint32_t kWipeEvery = 128;
constexpr std::uint32_t kPushed = 8;  // lines that a thread has in flight when it pushes
static_assert(kResidentCodecs == bit_of(Codec::None) &&
                  kResidentCollectives == bit_of(Collective::AllReduce),
              "combine_lines() is written for these alone");

enum class Collected : std::uint32_t { Waiting, Done, Mismatched, Reordered };

class ResidentOperation {
 public:
  __device__ __forceinline__ ResidentOperation(const ResidentMember& member, Pending& pending)
      : member_(member),
        pending_(pending),
        plan_(pending.entry.plan),
        number_(pending.number),
        flag_(flag_of(pending.number)),
        lines_(pending.lines),
        stride_(pending.blocks * kResidentThreads) {}

  // By all threads of the block.
  __device__ __forceinline__ void push() const {
    if (blockIdx.x == 0 && number_ % kWipeEvery < 2) wipe();
    const std::uint32_t peer = threadIdx.x;
    if (peer < member_.ranks && peer != member_.rank)
      store_ll16(header(peer, member_.rank), {plan_.signature, pending_.identity}, flag_);
    if (is_regular()) {
      const auto* send = static_cast<const uint2*>(plan_.send);
      push_lines<kPushed>([&](std::uint32_t line) { return __ldcg(send + line); });
    } else {
      push_apart(&member_, &pending_);
    }
  }

  // Called by all threads of the block; all get the same answer. `culprit` is, for Waiting, a rank
  // whose lines are missing; for Mismatched, the rank that asked for something else; for Reordered,
  // one that asked for the same and means another one.
  __device__ __forceinline__ Collected collect(std::uint32_t& culprit) {
    return with_kernel(plan_.dtype, plan_.op, [&]<typename Format, ReduceOp kOp>() {
      return combine<Format, kOp>(culprit);
    });
  }

 private:
  __device__ __forceinline__ std::uint32_t half() const { return number_ & 1U; }
  __device__ __forceinline__ std::uint32_t first_line() const {
    return blockIdx.x * kResidentThreads + threadIdx.x;
  }
  // Where rank `from` leaves this at rank `at`.
  __device__ __forceinline__ uint4* header(std::uint32_t at, std::uint32_t from) const {
    return static_cast<uint4*>(member_.scratch[at]) +
           (half() * kMaxGpuRanks + from) * kResidentBlocks + blockIdx.x;
  }
  __device__ __forceinline__ uint4* lines(std::uint32_t at, std::uint32_t from) const {
    return area(at, half()) + from * kLinesPerRank;
  }
  __device__ __forceinline__ uint4* area(std::uint32_t at, std::uint32_t half) const {
    auto* base = static_cast<unsigned char*>(member_.scratch[at]) + kHeaderBytes;
    return reinterpret_cast<uint4*>(base) + half * kMaxGpuRanks * kLinesPerRank;
  }

  __device__ __forceinline__ void wipe() const {
    constexpr std::uint32_t kLines = kMaxGpuRanks * kLinesPerRank;
    constexpr std::uint32_t kHeaders = kMaxGpuRanks * kResidentBlocks;
    const std::uint32_t all = number_ / kWipeEvery * kResidentThreads + threadIdx.x;
    const std::uint32_t line = all % (kLines + kHeaders), other = half() ^ 1U;
    // Also the headers: those of the last blocks are written by long operations alone.
    uint4* const at = line < kLines ? area(member_.rank, other) + line
                                    : static_cast<uint4*>(member_.scratch[member_.rank]) +
                                          other * kHeaders + (line - kLines);
    store_line(at, {0, 0, 0, 0});
    __threadfence();
    __syncthreads();
  }

  // Whether both buffers can be read and written in whole lines, to the end. Ranks may differ in
  // this: the lines between them are the same.
  __device__ __forceinline__ bool is_regular() const {
    const auto low = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(plan_.send) |
                                                reinterpret_cast<std::uintptr_t>(plan_.recv));
    return (low | static_cast<std::uint32_t>(size_of(plan_.dtype) * plan_.count)) % 8 == 0;
  }

  // read(line) loads the line's 8 bytes. There is no branch between the loads of several lines, or
  // they would wait for each other.
  template <std::uint32_t kAtOnce, typename Read>
  __device__ __forceinline__ void push_lines(Read read) const {
    for (std::uint32_t next = first_line(); next < lines_; next += kAtOnce * stride_) {
      uint2 data[kAtOnce];
#pragma unroll
      for (std::uint32_t u = 0; u < kAtOnce; ++u) {
        if (next + u * stride_ < lines_) data[u] = read(next + u * stride_);
      }
      for (std::uint32_t hop = 1; hop < member_.ranks; ++hop) {
        const std::uint32_t to = (member_.rank + hop) % member_.ranks;
        uint4* theirs = lines(to, member_.rank);
#pragma unroll
        for (std::uint32_t u = 0; u < kAtOnce; ++u) {
          const std::uint32_t line = next + u * stride_;
          if (line < lines_) store_ll16(theirs + line, data[u], flag_);
        }
      }
    }
  }
  static __device__ __noinline__ void push_apart(const ResidentMember* member, Pending* pending) {
    const ResidentOperation operation(*member, *pending);
    const ResidentPlan& plan = operation.plan_;
    const std::uint32_t size = static_cast<std::uint32_t>(size_of(plan.dtype));
    operation.push_lines<1>([&](std::uint32_t line) {
      return read_plain_line(static_cast<const unsigned char*>(plan.send), line, plan.count * size,
                             size);
    });
  }

  template <typename Format, ReduceOp kOp>
  __device__ __forceinline__ Collected combine(std::uint32_t& culprit) {
    if constexpr (kIsUsual<Format, kOp>) {
      const bool one_each = lines_ <= stride_, regular = is_regular();
      if (regular && member_.ranks == 2) {
        return one_each ? combine_lines<Format, kOp, 2, 1, true>(culprit)
                        : combine_lines<Format, kOp, 2, 5, true>(culprit);
      }
      if (regular && member_.ranks <= 4) {
        return one_each ? combine_lines<Format, kOp, 4, 1, true>(culprit)
                        : combine_lines<Format, kOp, 4, 2, true>(culprit);
      }
    }
    return combine_apart<Format, kOp, kMaxGpuRanks, 1>(culprit);
  }

  // What is rare is a function of its own for each type: the call costs time, and saves registers
  // for what inference does, which is inlined. Words go in and out in registers: local memory would
  // be read anew after each look at a doorbell.
  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll>
  static __device__ __noinline__ std::uint32_t called_apart(const ResidentMember* member,
                                                            Pending* pending) {
    std::uint32_t culprit = member->rank;
    const Collected collected = ResidentOperation(*member, *pending)
                                    .combine_lines<Format, kOp, kRanks, kUnroll, false>(culprit);
    // Where nobody is missing it is ~0, which must not reach the other half.
    return static_cast<std::uint32_t>(collected) << 16 | (culprit & 0xffffU);
  }
  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll>
  __device__ __forceinline__ Collected combine_apart(std::uint32_t& culprit) {
    const std::uint32_t ended = called_apart<Format, kOp, kRanks, kUnroll>(&member_, &pending_);
    culprit = ended & 0xffffU;
    return static_cast<Collected>(ended >> 16);
  }

  // Rounds of kUnroll lines per thread, with all peers' lines of a round in flight at once. A
  // thread looks again only for what it misses; the block votes when all have looked enough.
  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll,
            bool kRegular>
  __device__ __forceinline__ Collected combine_lines(std::uint32_t& culprit) {
    using Stored = typename Format::Stored;
    using Codec = PlainCodec<Format>;
    constexpr std::uint32_t kPeers = kRanks - 1;
    const auto* send = static_cast<const unsigned char*>(plan_.send);
    auto* recv = static_cast<Stored*>(plan_.recv);
    const std::uint64_t bytes = plan_.count * sizeof(Stored);
    std::uint32_t next = pending_.next;
    bool compared = pending_.agreed;
    // The arrays below are to be registers, so no function takes one of them. An operation of no
    // lines has one round, too, which compares whether all ranks asked for nothing.
    while (next < lines_ || !compared) {
      Ll16Line seen[kUnroll][kPeers];
      uint2 own[kUnroll];
      const std::uint32_t first_of_round = next + first_line();
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
        const std::uint32_t line = first_of_round + u * stride_;
        own[u] = {};
        if (line < lines_) {
          own[u] = kRegular ? __ldcg(reinterpret_cast<const uint2*>(send) + line)
                            : read_plain_line(send, line, bytes, sizeof(Stored));
        }
#pragma unroll
        for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
          seen[u][peer].seen = {0, flag_, 0, flag_};
          if (line < lines_ && peer + 1 < member_.ranks)
            seen[u][peer].load(lines(member_.rank, rank_of(peer)) + line);
        }
      }
      // The headers travel with the first lines.
      Ll16Line head{{plan_.signature, flag_, pending_.identity, flag_}};
      const bool compares = !compared && threadIdx.x < member_.ranks && threadIdx.x != member_.rank;
      if (compares) head.load(header(member_.rank, threadIdx.x));
      bool here = false;
#pragma unroll 1
      for (std::uint32_t look = 0; look < kLooks && !here; ++look) {
        here = head.is_of(flag_);
        culprit = ~0U;
        if (!here) {
          culprit = threadIdx.x;
          head.load(header(member_.rank, threadIdx.x));
        }
#pragma unroll
        for (std::uint32_t u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
            if (!seen[u][peer].is_of(flag_)) {
              here = false;
              culprit = min(culprit, rank_of(peer));
              seen[u][peer].load(lines(member_.rank, rank_of(peer)) + first_of_round + u * stride_);
            }
          }
        }
      }
      if (compares && head.is_of(flag_)) {
        if (head.data().x != plan_.signature) {
          pending_.dissenter = static_cast<std::int16_t>(threadIdx.x);
        } else if (head.data().y != pending_.identity) {
          pending_.out_of_order = static_cast<std::int16_t>(threadIdx.x);
        }
      }
      const bool all_here = __syncthreads_and(here) != 0;
      if (!compared && pending_.dissenter >= 0) {
        culprit = static_cast<std::uint32_t>(pending_.dissenter);
        return Collected::Mismatched;
      }
      if (!compared && pending_.out_of_order >= 0) {
        culprit = static_cast<std::uint32_t>(pending_.out_of_order);
        return Collected::Reordered;
      }
      if (!all_here) {
        if (threadIdx.x == 0) {
          pending_.next = next;
          pending_.agreed = compared;
        }
        culprit = first_of(here ? ~0U : culprit);
        return Collected::Waiting;
      }
      compared = true;
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
        const std::uint32_t line = first_of_round + u * stride_;
        if (line >= lines_) continue;
        typename Codec::template LineResult<kOp> result;
#pragma unroll
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
          if (rank > 0 && rank >= member_.ranks) continue;  // the first is always there
          uint2 part = own[u];
          if (rank > 0 && rank > member_.rank) part = seen[u][rank == 0 ? 0 : rank - 1].data();
          if (rank < kPeers && rank < member_.rank) part = seen[u][rank < kPeers ? rank : 0].data();
          result.combine_next(part, rank == 0);
        }
        const uint2 out = result.as_output(member_.ranks);
        const std::uint64_t first = std::uint64_t{line} * Codec::kLineElements;
        if constexpr (kRegular) {
          *reinterpret_cast<uint2*>(recv + first) = out;
        } else {
          Codec::write_elements(recv, first, plan_.count, out);
        }
      }
      next += kUnroll * stride_;
    }
    if (threadIdx.x == 0) pending_.next = next;
    return Collected::Done;
  }
  // Peer p is rank p, or p + 1 from this rank on.
  __device__ __forceinline__ std::uint32_t rank_of(std::uint32_t peer) const {
    return peer + (peer >= member_.rank ? 1 : 0);
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

  const ResidentMember& member_;
  Pending& pending_;
  const ResidentPlan& plan_;
  const std::uint32_t number_, flag_, lines_, stride_;
};

}  // namespace arcomm::device
