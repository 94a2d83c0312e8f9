// The way of small operations: lines of 8 bytes and their flag in both halves of a 16-byte store,
// as in one_shot_ll16.cu. One hop, nothing to wait for but the line itself, twice the data's size.
#pragma once

#include <cstdint>

#include "kernels/resident/operation.cuh"

namespace arcomm::device {

class ResidentLines : public ResidentOperation {
 public:
  __device__ __forceinline__ ResidentLines(const ResidentMember& member, Pending& pending)
      : ResidentOperation(member, pending), stride_(pending.blocks * kResidentThreads) {}

  // By all threads of the block.
  __device__ void push() const {
    push_header();
    const std::uint32_t size = static_cast<std::uint32_t>(size_of(plan_.dtype));
    const auto* send = static_cast<const unsigned char*>(plan_.send);
    const std::uint64_t bytes = plan_.count * size;
    const bool whole = reinterpret_cast<std::uintptr_t>(send) % 8 == 0;
    for (std::uint32_t next = first_line(); next < units_; next += kInFlight * stride_) {
      uint2 data[kInFlight];
#pragma unroll
      for (std::uint32_t u = 0; u < kInFlight; ++u) {
        if (next + u * stride_ < units_)
          data[u] = read_line(send, next + u * stride_, bytes, whole, size);
      }
      for (std::uint32_t hop = 1; hop < member_.ranks; ++hop) {
        const std::uint32_t to = (member_.rank + hop) % member_.ranks;
        uint4* theirs = lines(to, member_.rank);
#pragma unroll
        for (std::uint32_t u = 0; u < kInFlight; ++u) {
          const std::uint32_t line = next + u * stride_;
          if (line < units_) store_line(theirs + line, {data[u].x, flag_, data[u].y, flag_});
        }
      }
    }
  }

  // By all threads of the block; the same answer for all. `culprit`: Waiting: a rank whose lines
  // are missing; Failed: who asked for something else.
  __device__ __forceinline__ Collected collect(std::uint32_t& culprit) {
    return with_kernel(plan_.dtype, plan_.op, [&]<typename Format, ReduceOp kOp>() {
      if constexpr (kIsFrequent<Format, kOp>) {
        const bool one_each = units_ <= stride_;
        if (member_.ranks == 2) {
          return one_each ? combine<Format, kOp, 2, 1>(culprit)
                          : combine<Format, kOp, 2, 5>(culprit);
        }
        if (member_.ranks <= 4) {
          return one_each ? combine<Format, kOp, 4, 1>(culprit)
                          : combine<Format, kOp, 4, 2>(culprit);
        }
      }
      const std::uint32_t ended = called_apart<Format, kOp>(&member_, &pending_);
      culprit = culprit_from(ended);
      return collected_from(ended);
    });
  }

 private:
  static constexpr std::uint32_t kInFlight = 8;  // lines of a thread when it pushes

  __device__ __forceinline__ std::uint32_t first_line() const {
    return blockIdx.x * kResidentThreads + threadIdx.x;
  }
  __device__ __forceinline__ uint4* lines(std::uint32_t at, std::uint32_t from) const {
    return reinterpret_cast<uint4*>(slot(at, from));
  }

  // Past the L1, which knows nothing of what the client's kernels wrote meanwhile.
  static __device__ __forceinline__ uint2 read_line(const unsigned char* send, std::uint32_t line,
                                                    std::uint64_t bytes, bool whole,
                                                    std::uint32_t size) {
    const std::uint64_t first = std::uint64_t{line} * 8;
    if (whole && first + 8 <= bytes) return __ldcg(reinterpret_cast<const uint2*>(send + first));
    std::uint64_t data = 0;
    for (std::uint32_t at = 0; at < 8 && first + at < bytes; at += size) {
      std::uint64_t element = 0;
      switch (size) {
        case 1:
          element = __ldcg(send + first + at);
          break;
        case 2:
          element = __ldcg(reinterpret_cast<const unsigned short*>(send + first + at));
          break;
        case 4:
          element = __ldcg(reinterpret_cast<const unsigned int*>(send + first + at));
          break;
        default:
          element = __ldcg(reinterpret_cast<const unsigned long long*>(send + first + at));
      }
      data |= element << (at * 8);
    }
    return {static_cast<std::uint32_t>(data), static_cast<std::uint32_t>(data >> 32)};
  }

  template <typename Format, ReduceOp kOp>
  static __device__ __noinline__ std::uint32_t called_apart(const ResidentMember* member,
                                                            Pending* pending) {
    std::uint32_t culprit = member->rank;
    const Collected collected =
        ResidentLines(*member, *pending).combine<Format, kOp, kMaxCudaRanks, 1>(culprit);
    return to_word(collected, culprit);
  }

  // Rounds of kUnroll lines per thread, with all peers' lines of a round in flight at once. A
  // thread looks again only for what it misses; the block votes when all have looked enough.
  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll>
  __device__ __forceinline__ Collected combine(std::uint32_t& culprit) {
    using Stored = typename Format::Stored;
    using Eight = Pack<Format, 8>;
    constexpr std::uint32_t kCount = Eight::kCount;
    constexpr std::uint32_t kPeers = kRanks - 1;
    union Line {
      Stored elements[kCount];
      std::uint32_t words[2];
    };
    const auto* send = static_cast<const unsigned char*>(plan_.send);
    auto* recv = static_cast<Stored*>(plan_.recv);
    const std::uint64_t bytes = plan_.count * sizeof(Stored);
    const bool read_whole = reinterpret_cast<std::uintptr_t>(send) % 8 == 0;
    const bool write_whole = reinterpret_cast<std::uintptr_t>(recv) % 8 == 0;
    std::uint32_t next = pending_.next;
    bool compared = pending_.agreed;
    // No function of the arrays below: they are to be registers.
    while (next < units_) {
      uint4 seen[kUnroll][kPeers];
      uint2 own[kUnroll];
      const std::uint32_t first_of_round = next + first_line();
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
        const std::uint32_t line = first_of_round + u * stride_;
        own[u] = line < units_ ? read_line(send, line, bytes, read_whole, sizeof(Stored)) : uint2{};
#pragma unroll
        for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
          seen[u][peer] = {0, flag_, 0, flag_};
          if (line < units_ && peer + 1 < member_.ranks)
            seen[u][peer] = load_line(lines(member_.rank, rank_of(peer)) + line);
        }
      }
      const bool compares_now = compares(compared);
      uint4 head = look_at_header(compares_now);
      bool here = false;
#pragma unroll 1
      for (std::uint32_t look = 0; look < kLooks && !here; ++look) {
        here = is_here(head);
        culprit = ~0U;
        if (!here) {
          culprit = threadIdx.x;
          head = look_at_header(true);
        }
#pragma unroll
        for (std::uint32_t u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
            if (!is_here(seen[u][peer])) {
              here = false;
              culprit = min(culprit, rank_of(peer));
              seen[u][peer] =
                  load_line(lines(member_.rank, rank_of(peer)) + first_of_round + u * stride_);
            }
          }
        }
      }
      const Collected round = vote(here, compares_now, head, compared, next, culprit);
      if (round != Collected::Done) return round;
      compared = true;
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
        const std::uint32_t line = first_of_round + u * stride_;
        if (line >= units_) continue;
        Eight result;
#pragma unroll
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
          if (rank >= member_.ranks) continue;
          Line part{.words = {own[u].x, own[u].y}};
          if (rank > 0 && rank > member_.rank) {
            part.words[0] = seen[u][rank == 0 ? 0 : rank - 1].x;
            part.words[1] = seen[u][rank == 0 ? 0 : rank - 1].z;
          }
          if (rank < kPeers && rank < member_.rank) {
            part.words[0] = seen[u][rank < kPeers ? rank : 0].x;
            part.words[1] = seen[u][rank < kPeers ? rank : 0].z;
          }
          if (rank == 0) {
            result.widen(part.elements);
          } else {
            result.template combine_next<kOp>(part.elements);
          }
        }
        Line out;
        result.template store_to<kOp>(out.elements, member_.ranks);
        const std::uint64_t first = std::uint64_t{line} * kCount;
        if (write_whole && first + kCount <= plan_.count) {
          *reinterpret_cast<uint2*>(recv + first) = {out.words[0], out.words[1]};
        } else {
#pragma unroll
          for (std::uint32_t i = 0; i < kCount; ++i) {
            if (first + i < plan_.count) recv[first + i] = out.elements[i];
          }
        }
      }
      next += kUnroll * stride_;
    }
    if (threadIdx.x == 0) pending_.next = next;
    return Collected::Done;
  }

  const std::uint32_t stride_;
};

}  // namespace arcomm::device
