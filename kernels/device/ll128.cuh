// LL128 on the device: a warp's packet of eight lines, stored, waited for, and as vectors of
// elements. All 32 lanes of a warp call these together. See ll128_layout.h.
//
// Beyond what PTX promises this needs that 128 bytes which a warp stores with one instruction reach
// another GPU's memory at once, and are read so: ll128_self_test.h says whether they do.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/element.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/ll128_layout.h"
#include "kernels/partition.h"

namespace arcomm::device {

constexpr std::uint32_t kWarp = 0xffff'ffffU;
constexpr std::uint32_t kLl128Threads = 512;

// A warp takes every so-many-th packet, neighbours on different SMs. Packet p is block
// p % gridDim.x's on every rank.
__device__ __forceinline__ std::uint32_t first_packet() {
  return threadIdx.x / kLl128Lanes * gridDim.x + blockIdx.x;
}
__device__ __forceinline__ std::uint32_t packet_stride() {
  return kLl128Threads / kLl128Lanes * gridDim.x;
}
// `times`: how many warps work on each packet at once. Spread over the SMs before their
// warps are used up: latency is what counts here.
inline std::uint32_t ll128_blocks(std::uint64_t packets, std::uint64_t times) {
  constexpr std::uint64_t kWarpsPerBlock = 4;
  const std::uint64_t wanted = (packets * times + kWarpsPerBlock - 1) / kWarpsPerBlock;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::min(wanted, packets), 1, kDefaultCudaBlocks));
}

// What one lane has of a packet: nothing where ll128_has_data() says so.
struct LaneData {
  uint4 first, second;
};

__device__ __forceinline__ std::uint32_t lane_of_thread() {
  return threadIdx.x % kLl128Lanes;
}

// The lane's part of four lines, from its vector of their data; and back.
__device__ __forceinline__ uint4 into_lines(uint4 vector, std::uint32_t flag) {
  const std::uint32_t lane = lane_of_thread();
  const std::uint32_t of_7 = __shfl_sync(kWarp, vector.w, 7);
  const std::uint32_t of_15 = __shfl_sync(kWarp, vector.w, 15);
  const std::uint32_t of_23 = __shfl_sync(kWarp, vector.w, 23);
  if (!ll128_has_data(lane)) return {of_7, of_15, of_23, flag};
  if (ll128_has_flag(lane)) vector.w = flag;
  return vector;
}
__device__ __forceinline__ uint4 from_lines(uint4 vector) {
  const std::uint32_t lane = lane_of_thread(), last = kLl128Lanes - 1;
  const std::uint32_t of_7 = __shfl_sync(kWarp, vector.x, last);
  const std::uint32_t of_15 = __shfl_sync(kWarp, vector.y, last);
  const std::uint32_t of_23 = __shfl_sync(kWarp, vector.z, last);
  if (lane == 7) vector.w = of_7;
  if (lane == 15) vector.w = of_15;
  if (lane == 23) vector.w = of_23;
  return vector;
}

// `packet` counts from the start of the region, as in ll128_layout.h.
__device__ __forceinline__ uint4* ll128_packet(void* scratch, std::uint64_t packet) {
  return reinterpret_cast<uint4*>(static_cast<unsigned char*>(scratch) + kLl128Offset +
                                  packet * kLl128PacketBytes);
}

// A function of its own, since a barrier alone does not make one instruction of the stores behind
// it: inlined, the compiler may make copies of them, one for the lanes that have less to read,
// among them those with flags, which would then arrive before the data. That is what we believe:
// wrong sums on H200, of a kernel that read element by element, were gone once its stores and its
// way of reading had changed together; nobody has looked at the machine code.
inline __device__ __noinline__ void store_packet(uint4* packet, LaneData data, std::uint32_t flag) {
  const std::uint32_t lane = lane_of_thread();
  const uint4 first = into_lines(data.first, flag), second = into_lines(data.second, flag);
  __syncwarp();  // each line with one instruction
  store_line(packet + lane, first);
  store_line(packet + kLl128Lanes + lane, second);
}

struct Lines {
  uint4 first, second;

  __device__ __forceinline__ void load(const uint4* packet) {
    const std::uint32_t lane = lane_of_thread();
    __syncwarp();
    first = load_line(packet + lane);
    second = load_line(packet + kLl128Lanes + lane);
  }
  __device__ __forceinline__ bool are_of(std::uint32_t flag) const {
    return !ll128_has_flag(lane_of_thread()) || (first.w == flag && second.w == flag);
  }
  // Of the last lane nobody may use it.
  __device__ __forceinline__ LaneData data() const {
    return {from_lines(first), from_lines(second)};
  }
};

// Waits for a packet that `from` leaves. False: the wait failed. The same answer in all lanes.
template <typename Watch>
__device__ __forceinline__ bool receive_packet(Lines& lines, const uint4* packet,
                                               std::uint32_t from, std::uint32_t flag,
                                               WaitBudget<Watch>& budget) {
  for (;;) {
    lines.load(packet);
    if (__all_sync(kWarp, lines.are_of(flag))) return true;
    if (!budget.is_due()) continue;
    const bool gives_up = lane_of_thread() == 0 && !budget.looks_around(from);
    if (__any_sync(kWarp, gives_up)) return false;
  }
}

// Elements of `range` as packets hold them.
template <typename Format>
class PacketElements {
 public:
  using Stored = typename Format::Stored;
  using Sixteen = Pack<Format, 16>;
  static constexpr std::uint32_t kCount = Sixteen::kCount;
  union Vector {
    uint4 whole;
    Stored elements[kCount];
  };

  // `vectors`: the buffers that it is used on lie on 16 bytes, and the range starts on 16 of them.
  __device__ __forceinline__ PacketElements(ElementRange range, bool vectors)
      : range_(range), vectors_(vectors) {}

  // Past L1, so also before begin_epoch().
  __device__ __forceinline__ LaneData read(const void* send, std::uint64_t packet) const {
    const std::uint32_t lane = lane_of_thread();
    const auto* from = static_cast<const Stored*>(send);
    if (!ll128_has_data(lane)) return {};
    return {read_vector(from, element(packet, ll128_first_vector(lane))),
            read_vector(from, element(packet, ll128_second_vector(lane)))};
  }
  __device__ __forceinline__ void write(void* recv, std::uint64_t packet,
                                        const LaneData& data) const {
    const std::uint32_t lane = lane_of_thread();
    auto* to = static_cast<Stored*>(recv);
    if (!ll128_has_data(lane)) return;
    write_vector(to, element(packet, ll128_first_vector(lane)), data.first);
    write_vector(to, element(packet, ll128_second_vector(lane)), data.second);
  }

 private:
  __device__ __forceinline__ std::uint64_t element(std::uint64_t packet,
                                                   std::uint32_t vector) const {
    return range_.first + (packet * (kLl128PacketData / 16) + vector) * kCount;
  }
  __device__ __forceinline__ uint4 read_vector(const Stored* from, std::uint64_t at) const {
    if (vectors_ && at + kCount <= range_.last)
      return load_past_l1(reinterpret_cast<const uint4*>(from + at));
    if (at >= range_.last) return {};
    return read_elements(from, at, range_.last);
  }
  __device__ __forceinline__ void write_vector(Stored* to, std::uint64_t at,
                                               const uint4& whole) const {
    if (vectors_ && at + kCount <= range_.last) {
      *reinterpret_cast<uint4*>(to + at) = whole;
    } else if (at < range_.last) {
      write_elements(to, at, range_.last, whole);
    }
  }
  // Out of the way of whole vectors, and of what lies behind the last: most operations have both.
  static __device__ __noinline__ uint4 read_elements(const Stored* from, std::uint64_t at,
                                                     std::uint64_t last) {
    Vector vector{};
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (at + i < last) vector.elements[i] = load_past_l1(from + at + i);
    }
    return vector.whole;
  }
  static __device__ __noinline__ void write_elements(Stored* to, std::uint64_t at,
                                                     std::uint64_t last, uint4 whole) {
    Vector vector;
    vector.whole = whole;
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (at + i < last) to[at + i] = vector.elements[i];
    }
  }

  ElementRange range_;
  bool vectors_;
};

// A lane's vectors of all ranks, one after the other in rank order.
template <typename Format, ReduceOp kOp>
class LaneResult {
 public:
  __device__ __forceinline__ void combine_next(const LaneData& data, bool is_first) {
    combine(first_, data.first, is_first);
    combine(second_, data.second, is_first);
  }
  __device__ __forceinline__ LaneData finish(std::uint32_t ranks) const {
    Vector first, second;
    first_.template store_to<kOp>(first.elements, ranks);
    second_.template store_to<kOp>(second.elements, ranks);
    return {first.whole, second.whole};
  }

 private:
  using Sixteen = Pack<Format, 16>;
  using Vector = typename PacketElements<Format>::Vector;

  static __device__ __forceinline__ void combine(Sixteen& so_far, const uint4& whole,
                                                 bool is_first) {
    Vector next;
    next.whole = whole;
    if (is_first) {
      so_far.widen(next.elements);
    } else {
      so_far.template combine_next<kOp>(next.elements);
    }
  }

  Sixteen first_, second_;
};

// This lane's part of one packet, combined over all ranks: `mine`, and what the others leave at
// place(rank). kBatch of them are looked at together. False: the wait failed.
// Call: CudaAllReduce or InStreamCall, Watch as theirs.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch, typename Call, typename Place,
          typename Watch>
__device__ __forceinline__ bool reduce_packet(const Call& call, const LaneData& mine, Place place,
                                              std::uint32_t epoch, WaitBudget<Watch>& budget,
                                              LaneData& out) {
  constexpr std::uint32_t kNobody = 0xffff'ffffU;
  LaneResult<Format, kOp> result;
#pragma unroll 1
  for (std::uint32_t first = 0; first < call.ranks; first += kBatch) {
    const auto sends = [&](std::uint32_t rank) { return rank < call.ranks && rank != call.rank; };
    Lines lines[kBatch];
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < kBatch; ++i) {
        if (sends(first + i)) lines[i].load(place(first + i));
      }
      std::uint32_t missing = kNobody;
#pragma unroll
      for (std::uint32_t i = kBatch; i-- > 0;) {
        if (sends(first + i) && !lines[i].are_of(epoch)) missing = first + i;
      }
      missing = __reduce_min_sync(kWarp, missing);
      if (missing == kNobody) break;
      if (!budget.is_due()) continue;
      const bool gives_up = lane_of_thread() == 0 && !budget.looks_around(missing);
      if (__any_sync(kWarp, gives_up)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t rank = first + i;
      if (rank >= call.ranks) continue;
      result.combine_next(rank == call.rank ? mine : lines[i].data(), rank == 0);
    }
  }
  out = result.finish(call.ranks);
  return true;
}

}  // namespace arcomm::device
