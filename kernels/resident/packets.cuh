// The way of larger operations: packets of LL128, eight lines of 128 bytes that each end in a flag.
// It costs a seventh of LL16's surplus on the link, and each thread has 32 bytes in flight at once.
#pragma once

#include <cstdint>

#include "kernels/device/ll128.cuh"
#include "kernels/resident/operation.cuh"

namespace arcomm::device {

class ResidentPackets : public ResidentOperation {
 public:
  __device__ __forceinline__ ResidentPackets(const ResidentMember& member, Pending& pending)
      : ResidentOperation(member, pending),
        first_packet_(threadIdx.x / kLl128Lanes * pending.blocks + blockIdx.x),
        stride_(pending.blocks * kResidentWarps) {}

  // By all threads of the block.
  __device__ void push() const {
    push_header();
    const std::uint32_t size = static_cast<std::uint32_t>(size_of(plan_.dtype));
    const Bytes send = bytes_of(plan_.send, plan_.count * size, size);
    // Warps differ in how often they go round; lanes of a warp do not.
    for (std::uint32_t next = first_packet_; next < units_; next += kInFlight * stride_) {
      LaneData data[kInFlight];
#pragma unroll
      for (std::uint32_t u = 0; u < kInFlight; ++u) {
        if (next + u * stride_ < units_) data[u] = read(send, next + u * stride_);
      }
      for (std::uint32_t hop = 1; hop < member_.ranks; ++hop) {
        const std::uint32_t to = (member_.rank + hop) % member_.ranks;
#pragma unroll
        for (std::uint32_t u = 0; u < kInFlight; ++u) {
          const std::uint32_t packet = next + u * stride_;
          if (packet < units_) store_packet(place(to, member_.rank, packet), data[u], flag_);
        }
      }
    }
  }

  // By all threads of the block; the same answer for all. `culprit` as in lines.cuh. Apart from the
  // resident loop, which it would take registers from.
  static __device__ __noinline__ std::uint32_t collect(const ResidentMember* member,
                                                       Pending* pending) {
    return with_kernel(pending->entry.plan.dtype, pending->entry.plan.op,
                       [&]<typename Format, ReduceOp kOp>() {
                         if constexpr (kIsFrequent<Format, kOp>) {
                           if (member->ranks == 2)
                             return called_apart<Format, kOp, 2, 2>(member, pending);
                           if (member->ranks <= 4)
                             return called_apart<Format, kOp, 4, 1>(member, pending);
                         }
                         return called_apart<Format, kOp, 0, 1>(member, pending);
                       });
  }

 private:
  static constexpr std::uint32_t kInFlight = 4;  // packets of a warp when it pushes

  // A buffer, and whether vectors of it may be read and written whole.
  struct Bytes {
    unsigned char* base;
    std::uint64_t bytes;
    std::uint32_t element_size;
    bool on_16;
  };
  static __device__ __forceinline__ Bytes bytes_of(const void* base, std::uint64_t bytes,
                                                   std::uint32_t element_size) {
    return {static_cast<unsigned char*>(const_cast<void*>(base)), bytes, element_size,
            reinterpret_cast<std::uintptr_t>(base) % 16 == 0};
  }

  __device__ __forceinline__ uint4* place(std::uint32_t at, std::uint32_t from,
                                          std::uint32_t packet) const {
    return reinterpret_cast<uint4*>(slot(at, from) + kResidentPacketsOffset +
                                    packet * kLl128PacketBytes);
  }

  // Past the L1, which knows nothing of what the client's kernels wrote meanwhile.
  static __device__ __forceinline__ uint4 read_vector(const Bytes& from, std::uint32_t packet,
                                                      std::uint32_t vector) {
    const std::uint64_t first = packet * kLl128PacketData + vector * 16;
    if (from.on_16 && first + 16 <= from.bytes)
      return __ldcg(reinterpret_cast<const uint4*>(from.base + first));
    std::uint64_t words[2] = {0, 0};
#pragma unroll 1
    for (std::uint32_t at = 0; at < 16 && first + at < from.bytes; at += from.element_size) {
      const unsigned char* source = from.base + first + at;
      std::uint64_t element = 0;
      switch (from.element_size) {
        case 1:
          element = __ldcg(source);
          break;
        case 2:
          element = __ldcg(reinterpret_cast<const unsigned short*>(source));
          break;
        case 4:
          element = __ldcg(reinterpret_cast<const unsigned int*>(source));
          break;
        default:
          element = __ldcg(reinterpret_cast<const unsigned long long*>(source));
      }
      const std::uint64_t shifted = element << (at % 8 * 8);
      words[0] |= at < 8 ? shifted : 0;
      words[1] |= at < 8 ? 0 : shifted;
    }
    return {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[0] >> 32),
            static_cast<std::uint32_t>(words[1]), static_cast<std::uint32_t>(words[1] >> 32)};
  }
  static __device__ __forceinline__ LaneData read(const Bytes& from, std::uint32_t packet) {
    const std::uint32_t lane = lane_of_thread();
    LaneData data{read_vector(from, packet, ll128_first_vector(lane)), {}};
    if (!ll128_has_flag(lane)) data.second = read_vector(from, packet, ll128_second_vector(lane));
    return data;
  }
  template <typename Stored>
  static __device__ __forceinline__ void write_vector(const Bytes& to, std::uint32_t packet,
                                                      std::uint32_t vector, const uint4& whole) {
    constexpr std::uint32_t kCount = 16 / sizeof(Stored);
    const std::uint64_t first = packet * kLl128PacketData + vector * 16;
    if (to.on_16 && first + 16 <= to.bytes) {
      *reinterpret_cast<uint4*>(to.base + first) = whole;
      return;
    }
    union {
      uint4 vector;
      Stored elements[kCount];
    } value{whole};
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint64_t at = first + i * sizeof(Stored);
      if (at < to.bytes) *reinterpret_cast<Stored*>(to.base + at) = value.elements[i];
    }
  }

  template <typename Stored>
  static __device__ __forceinline__ void write(const Bytes& to, std::uint32_t packet,
                                               const LaneData& data) {
    const std::uint32_t lane = lane_of_thread();
    write_vector<Stored>(to, packet, ll128_first_vector(lane), data.first);
    if (!ll128_has_flag(lane))
      write_vector<Stored>(to, packet, ll128_second_vector(lane), data.second);
  }

  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll>
  static __device__ __noinline__ std::uint32_t called_apart(const ResidentMember* member,
                                                            Pending* pending) {
    std::uint32_t culprit = member->rank;
    ResidentPackets operation(*member, *pending);
    Collected collected;
    if constexpr (kRanks == 0) {
      collected = operation.combine_one_by_one<Format, kOp>(culprit);
    } else {
      collected = operation.combine<Format, kOp, kRanks, kUnroll>(culprit);
    }
    return to_word(collected, culprit);
  }

  // Rounds of kUnroll packets per warp, with all peers' packets of a round in flight at once. A
  // warp looks again only for what it misses; the block votes when all have looked enough.
  template <typename Format, ReduceOp kOp, std::uint32_t kRanks, std::uint32_t kUnroll>
  __device__ __forceinline__ Collected combine(std::uint32_t& culprit) {
    using Stored = typename Format::Stored;
    constexpr std::uint32_t kPeers = kRanks - 1;
    const std::uint64_t bytes = plan_.count * sizeof(Stored);
    const Bytes send = bytes_of(plan_.send, bytes, sizeof(Stored));
    const Bytes recv = bytes_of(plan_.recv, bytes, sizeof(Stored));
    std::uint32_t next = pending_.next;
    bool compared = pending_.agreed;
    // No function of the arrays below: they are to be registers.
    while (next < units_) {
      Lines seen[kUnroll][kPeers];
      LaneData own[kUnroll];
      const std::uint32_t first_of_round = next + first_packet_;
      const auto wanted = [&](std::uint32_t u, std::uint32_t peer) {
        return first_of_round + u * stride_ < units_ && peer + 1 < member_.ranks;
      };
      const auto from = [&](std::uint32_t u, std::uint32_t peer) {
        return place(member_.rank, rank_of(peer), first_of_round + u * stride_);
      };
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
          if (wanted(u, peer)) seen[u][peer].load(from(u, peer));
        }
        if (wanted(u, 0)) own[u] = read(send, first_of_round + u * stride_);
      }
      const bool compares_now = compares(compared);
      uint4 head = look_at_header(compares_now);
      bool here = false;  // the same in all lanes of a warp
#pragma unroll 1
      for (std::uint32_t look = 0; look < kLooks && !here; ++look) {
        here = __all_sync(kWarp, is_here(head)) != 0;
        culprit = ~0U;
        if (!is_here(head)) {
          culprit = threadIdx.x;
          head = look_at_header(true);
        }
#pragma unroll
        for (std::uint32_t u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
            if (!wanted(u, peer) || __all_sync(kWarp, seen[u][peer].are_of(flag_))) continue;
            here = false;
            culprit = min(culprit, rank_of(peer));
            seen[u][peer].load(from(u, peer));
          }
        }
      }
      const Collected round = vote(here, compares_now, head, compared, next, culprit);
      if (round != Collected::Done) return round;
      compared = true;
#pragma unroll
      for (std::uint32_t u = 0; u < kUnroll; ++u) {
        const std::uint32_t packet = first_of_round + u * stride_;
        if (packet >= units_) continue;
        LaneResult<Format, kOp> result;
#pragma unroll
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
          if (rank >= member_.ranks) continue;
          LaneData part = own[u];
          if (rank > 0 && rank > member_.rank) part = seen[u][rank == 0 ? 0 : rank - 1].data();
          if (rank < kPeers && rank < member_.rank) part = seen[u][rank < kPeers ? rank : 0].data();
          result.combine_next(part, rank == 0);
        }
        write<Stored>(recv, packet, result.finish(member_.ranks));
      }
      next += kUnroll * stride_;
    }
    if (threadIdx.x == 0) pending_.next = next;
    return Collected::Done;
  }

  // For what is rare, in few registers: a packet per warp, looked at in one turn over the peers and
  // loaded again in another one.
  template <typename Format, ReduceOp kOp>
  __device__ __forceinline__ Collected combine_one_by_one(std::uint32_t& culprit) {
    using Stored = typename Format::Stored;
    const std::uint64_t bytes = plan_.count * sizeof(Stored);
    const Bytes send = bytes_of(plan_.send, bytes, sizeof(Stored));
    const Bytes recv = bytes_of(plan_.recv, bytes, sizeof(Stored));
    bool compared = pending_.agreed;
    for (std::uint32_t next = pending_.next; next < units_; next += stride_) {
      const std::uint32_t packet = next + first_packet_;
      const bool wanted = packet < units_;
      const bool compares_now = compares(compared);
      uint4 head = look_at_header(compares_now);
      bool here = false;  // the same in all lanes of a warp
#pragma unroll 1
      for (std::uint32_t look = 0; look < kLooks && !here; ++look) {
        here = __all_sync(kWarp, is_here(head)) != 0;
        culprit = ~0U;
        if (!is_here(head)) {
          culprit = threadIdx.x;
          head = look_at_header(true);
        }
#pragma unroll 1
        for (std::uint32_t rank = 0; rank < member_.ranks; ++rank) {
          if (!wanted || rank == member_.rank) continue;
          Lines seen;
          seen.load(place(member_.rank, rank, packet));
          if (__all_sync(kWarp, seen.are_of(flag_))) continue;
          here = false;
          culprit = min(culprit, rank);
        }
      }
      const Collected round = vote(here, compares_now, head, compared, next, culprit);
      if (round != Collected::Done) return round;
      compared = true;
      if (!wanted) continue;
      LaneResult<Format, kOp> result;
#pragma unroll 1
      for (std::uint32_t rank = 0; rank < member_.ranks; ++rank) {
        LaneData part;
        if (rank == member_.rank) {
          part = read(send, packet);
        } else {
          Lines seen;
          seen.load(place(member_.rank, rank, packet));
          part = seen.data();
        }
        result.combine_next(part, rank == 0);
      }
      write<Stored>(recv, packet, result.finish(member_.ranks));
    }
    if (threadIdx.x == 0) pending_.next = units_;
    return Collected::Done;
  }

  const std::uint32_t first_packet_, stride_;
};

}  // namespace arcomm::device
