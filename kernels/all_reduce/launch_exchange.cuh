// How launched kernels run the algorithms that are written for either exchange: through the scratch
// of cuda_scratch.h, in the epochs of device/scratch.cuh. Halves of a region alternate by epoch.
// Two halves are enough, whatever ran in between: a peer that writes epoch e + 2 has ended e + 1,
// so all ranks have begun e + 1, so their launches of e have ended and have read all of the half
// that the peer writes to. No data and no old line is taken for a flag: LL16 and LL128 have regions
// of their own, and all algorithms on LL128 put their lines on multiples of 128 bytes.
#pragma once

#include <cstdint>

#include "kernels/device/scratch.cuh"
#include "kernels/lines/ll128.cuh"

namespace arcomm::device {

class LaunchExchange {
 public:
  // A thread has as many lines, a warp as many packets, as the operation's size demands.
  static constexpr bool kOneEach = false;

  __device__ __forceinline__ explicit LaunchExchange(const CudaAllReduce& call) : call_(call) {}

  __device__ __forceinline__ std::uint32_t rank() const { return call_.rank; }
  __device__ __forceinline__ std::uint32_t ranks() const { return call_.ranks; }
  __device__ __forceinline__ std::uint64_t count() const { return call_.count; }
  __device__ __forceinline__ const void* send() const { return call_.send[call_.rank]; }
  __device__ __forceinline__ void* recv() const { return call_.recv[call_.rank]; }

  // All threads of all blocks move data.
  __device__ __forceinline__ bool moves() const { return true; }
  __device__ __forceinline__ std::uint32_t thread() const {
    return blockIdx.x * blockDim.x + threadIdx.x;
  }
  __device__ __forceinline__ std::uint32_t threads() const { return gridDim.x * blockDim.x; }

  // The input may be read from here on.
  __device__ __forceinline__ void enter() const {}
  // By all threads, before anything is stored. False: the block must do nothing but leave().
  __device__ __forceinline__ bool begins() {
    epoch_ = begin_epoch(call_);
    return epoch_ != 0;
  }
  __device__ __forceinline__ LaunchBudget budget() const { return budget_of(call_); }
  __device__ __forceinline__ std::uint32_t flag() const { return epoch_; }
  __device__ __forceinline__ std::uint32_t packet_flag() const { return flag(); }
  // By all threads, last of all. well: all that this thread waited for has come.
  __device__ __forceinline__ void leave(bool well) const { end_epoch(call_, !well); }

  // Where rank `from` leaves something for rank `at`: LL16 line `line` of an input; the
  // block's packet `of_block` of an input, of a part of `at`'s shard, and of the result of `from`'s
  // shard.
  __device__ __forceinline__ uint4* line(std::uint32_t at, std::uint32_t from,
                                         std::uint32_t line) const {
    constexpr std::uint64_t kArea = 2 * kMaxLl16Bytes;
    auto* base = static_cast<unsigned char*>(call_.scratch[at]) + kCudaControlBytes;
    return reinterpret_cast<uint4*>(base + ((epoch_ & 1U) * kMaxGpuRanks + from) * kArea) + line;
  }
  __device__ __forceinline__ uint4* input(std::uint32_t at, std::uint32_t from,
                                          std::uint32_t of_block) const {
    return packet(at, one_shot_area(epoch_, call_.ranks, from), of_block);
  }
  __device__ __forceinline__ uint4* part(std::uint32_t at, std::uint32_t from,
                                         std::uint32_t of_block) const {
    return packet(at, two_shot_part_area(epoch_, call_.ranks, from), of_block);
  }
  __device__ __forceinline__ uint4* result(std::uint32_t at, std::uint32_t from,
                                           std::uint32_t of_block) const {
    return packet(at, two_shot_result_area(epoch_, call_.ranks, from), of_block);
  }

 private:
  __device__ __forceinline__ uint4* packet(std::uint32_t at, std::uint64_t area,
                                           std::uint32_t of_block) const {
    const std::uint64_t packet = area + packet_of_all(of_block);
    return reinterpret_cast<uint4*>(static_cast<unsigned char*>(call_.scratch[at]) + kLl128Offset +
                                    packet * kLl128PacketBytes);
  }

  const CudaAllReduce& call_;
  std::uint32_t epoch_ = 0;
};

}  // namespace arcomm::device
