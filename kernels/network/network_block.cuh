// What the blocks of the network kernels share: waiting as a block, copying and combining chunks,
// and the end of a launch. Compiled by exchange.cu, exchange_coded.cu and ring.cu.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/args.h"
#include "kernels/device/device_fifo.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/network/launch_network.h"

namespace arcomm::device {

constexpr std::uint32_t kNetworkThreads = 512;
// Loads of a thread that are under way together. One takes 0.6 us, or 1.3 us over PCIe, in which a
// block with one a thread moves 8 KB: 4 to 8 GB/s.
constexpr std::uint32_t kInFlight = 4;

// One block's account of its waits. All threads call its functions together; the first one waits.
// Out of line, as the kernels are many and a wait takes microseconds.
class NetworkBlock {
 public:
  __device__ __forceinline__ explicit NetworkBlock(const NetworkCall& call)
      : budget_({&wait_, call.timeout_ns, &verdict_}), watch_{&wait_, call.timeout_ns, &verdict_} {}

  // Where a step is to be staged, once there is room; nullptr: give up.
  __device__ __noinline__ unsigned char* room(const DeviceSendFifo& fifo, std::uint64_t step) {
    unsigned char* place = nullptr;
    if (threadIdx.x == 0 && wait_for(fifo.port(), step, [&] { return fifo.has_room(step); })) {
      place = fifo.place(step);
      if (place == nullptr) watch_.fail(ErrorCode::DataLoss, Reason::Corrupt);
    }
    return of_first(place);
  }
  // The same without a place. False: give up.
  __device__ __noinline__ bool turn(const DeviceSendFifo& fifo, std::uint64_t step) {
    const bool came =
        threadIdx.x != 0 || wait_for(fifo.port(), step, [&] { return fifo.has_room(step); });
    return __syncthreads_and(came) != 0;
  }
  // Until the other block has taken a step's bytes from where they lay. False: give up.
  __device__ __noinline__ bool taken(const DeviceSendFifo& fifo, std::uint64_t step) {
    const bool came =
        threadIdx.x != 0 || wait_for(fifo.port(), step, [&] { return fifo.is_taken(step); });
    return __syncthreads_and(came) != 0;
  }
  // The bytes of a step, once they have come; nullptr: give up.
  __device__ __noinline__ const unsigned char* data(const DeviceReceiveFifo& fifo,
                                                    std::uint64_t step, std::uint32_t bytes) {
    const unsigned char* come = nullptr;
    if (threadIdx.x == 0 && wait_for(fifo.port(), step, [&] { return fifo.has_come(step); })) {
      come = fifo.data(step, bytes);
      if (come == nullptr) watch_.fail(ErrorCode::DataLoss, Reason::Corrupt);
    }
    return of_first(come);
  }
  // The barriers make one thread's release that of the block.
  __device__ __noinline__ void publish(const DeviceSendFifo& fifo, std::uint64_t step,
                                       std::uint32_t bytes, const void* from) {
    __syncthreads();
    if (threadIdx.x == 0) fifo.publish(step, bytes, from);
  }
  __device__ __noinline__ void consumed(const DeviceReceiveFifo& fifo, std::uint64_t step,
                                        std::uint64_t last) {
    __syncthreads();
    if (threadIdx.x == 0) fifo.consumed(step, last);
  }
  // 0, or the Done word of what went wrong; the first thread's.
  __device__ __forceinline__ std::uint64_t verdict() const { return verdict_; }

 private:
  template <typename Look>
  __device__ __forceinline__ bool wait_for(const FifoPort& port, std::uint64_t step, Look look) {
    wait_ = {&port, step};
    while (!look()) {
      if (!budget_.goes_on(0)) return false;
    }
    return true;
  }
  // Behind the first barrier all threads see what the first one acquired.
  template <typename Pointer>
  __device__ __forceinline__ Pointer of_first(Pointer mine) {
    __shared__ const unsigned char* shared;
    if (threadIdx.x == 0) shared = mine;
    __syncthreads();
    const unsigned char* first = shared;
    __syncthreads();
    return const_cast<Pointer>(first);
  }

  FifoWait wait_{};
  std::uint64_t verdict_ = 0;
  WaitBudget<FifoWatch> budget_;
  FifoWatch watch_;
};

__device__ __forceinline__ bool is_on_16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// By all threads. Past L1: what the proxy brought is new in the same slot each time.
__device__ __noinline__ inline void copy_chunk(unsigned char* to, const unsigned char* from,
                                               std::uint32_t bytes) {
  const std::uint32_t vectors = is_on_16(to) && is_on_16(from) ? bytes / 16 : 0;
  const std::uint32_t step = blockDim.x;
  const auto* const source = reinterpret_cast<const uint4*>(from);
  auto* const target = reinterpret_cast<uint4*>(to);
  std::uint32_t i = threadIdx.x;
  for (; i + (kInFlight - 1) * step < vectors; i += kInFlight * step) {
    uint4 moved[kInFlight];
#pragma unroll
    for (std::uint32_t k = 0; k < kInFlight; ++k) moved[k] = load_past_l1(source + i + k * step);
#pragma unroll
    for (std::uint32_t k = 0; k < kInFlight; ++k) target[i + k * step] = moved[k];
  }
  for (; i < vectors; i += step) target[i] = load_past_l1(source + i);
  for (std::uint32_t i = vectors * 16 + threadIdx.x; i < bytes; i += blockDim.x)
    to[i] = load_past_l1(from + i);
}

// What partials are made of: accumulators where they are wide.
template <typename Format, bool kWide>
using PartialFormat = std::conditional_t<kWide, Plain<typename Format::Combined>, Format>;
template <typename Format, bool kWide>
using Partial = typename PartialFormat<Format, kWide>::Stored;

// As finish(), for worlds of more ranks than a small integer can count.
template <ReduceOp kOp, typename C>
__device__ __forceinline__ C finish_world(C value, std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Avg && std::is_integral_v<C> && sizeof(C) < 4) {
    return static_cast<C>(value / static_cast<int>(ranks));
  } else {
    return finish<kOp>(value, ranks);
  }
}

// Vectors `first`, first + step, ...: so many of them. All are aligned.
template <typename In, typename Out, std::uint32_t kMany, ReduceOp kOp, typename Finish>
__device__ __forceinline__ void combine_vectors(std::uint32_t inputs,
                                                const typename In::Stored* const* parts,
                                                typename Out::Stored* out, std::uint64_t first,
                                                std::uint32_t step, const Finish& finished) {
  using Vector = Moved<typename In::Stored, uint4>;
  using Result = Moved<typename Out::Stored, uint4>;
  constexpr std::uint32_t kCount = 16 / sizeof(typename In::Stored);
  Pack<In, 16> sums[kMany];
  Vector here[kMany], next[kMany];
  const auto load = [&](Vector(&vectors)[kMany], std::uint32_t input) {
    const auto* const from = reinterpret_cast<const uint4*>(parts[input]) + first;
#pragma unroll
    for (std::uint32_t k = 0; k < kMany; ++k) vectors[k].whole = load_past_l1(from + k * step);
  };
  load(here, 0);
  for (std::uint32_t i = 0;; ++i) {
    const bool is_last = i + 1 == inputs;
    // Under way while this one's are waited for.
    if (!is_last) load(next, i + 1);
#pragma unroll
    for (std::uint32_t k = 0; k < kMany; ++k)
      sums[k].template combine_next<kOp>(here[k].elements, i == 0);
    if (is_last) break;
#pragma unroll
    for (std::uint32_t k = 0; k < kMany; ++k) here[k] = next[k];
  }
#pragma unroll
  for (std::uint32_t k = 0; k < kMany; ++k) {
    const std::uint64_t vector = first + k * step;
    if constexpr (sizeof(typename Out::Stored) == sizeof(typename In::Stored)) {
      Result result;
#pragma unroll
      for (std::uint32_t e = 0; e < kCount; ++e) result.elements[e] = finished(sums[k].values[e]);
      reinterpret_cast<uint4*>(out)[vector] = result.whole;
    } else {
#pragma unroll
      for (std::uint32_t e = 0; e < kCount; ++e)
        out[vector * kCount + e] = finished(sums[k].values[e]);
    }
  }
}

// The parts of `inputs` nodes combined in their order into elements of Out; the last of all
// combinations also divides. By all threads.
template <typename In, typename Out, ReduceOp kOp, bool kLast>
__device__ __noinline__ void combine_chunk(std::uint32_t inputs,
                                           const typename In::Stored* const* parts,
                                           typename Out::Stored* out, std::uint64_t count,
                                           std::uint32_t divisor) {
  using Stored = typename In::Stored;
  constexpr std::uint32_t kCount = 16 / sizeof(Stored);
  bool aligned = is_on_16(out);
  for (std::uint32_t i = 0; i < inputs; ++i) aligned = aligned && is_on_16(parts[i]);
  const std::uint64_t vectors = aligned ? count / kCount : 0;
  const auto finished = [divisor](typename In::Combined value) {
    if constexpr (kLast) value = finish_world<kOp>(value, divisor);
    return Out::narrow(value);
  };
  // A register for each element, however small.
  constexpr std::uint32_t kMany = sizeof(Stored) == 1 ? kInFlight / 2 : kInFlight;
  const std::uint32_t step = blockDim.x;
  std::uint64_t v = threadIdx.x;
  for (; v + (kMany - 1) * step < vectors; v += kMany * step)
    combine_vectors<In, Out, kMany, kOp>(inputs, parts, out, v, step, finished);
  for (; v < vectors; v += step)
    combine_vectors<In, Out, 1, kOp>(inputs, parts, out, v, step, finished);
  for (std::uint64_t e = vectors * kCount + threadIdx.x; e < count; e += blockDim.x) {
    Pack<In, static_cast<int>(sizeof(Stored))> sum;
    for (std::uint32_t i = 0; i < inputs; ++i) {
      const Stored part[1] = {load_past_l1(parts[i] + e)};
      sum.template combine_next<kOp>(part, i == 0);
    }
    out[e] = finished(sum.values[0]);
  }
}

// This node's part of a chunk: its ranks' inputs, combined in their order. By all threads, which
// see it behind a barrier.
template <typename Format, ReduceOp kOp, bool kWide>
__device__ __noinline__ void combine_seats(const NetworkCall& call, const ElementRange& chunk,
                                           unsigned char* to) {
  using Stored = typename Format::Stored;
  __shared__ const Stored* inputs[kMaxGpuRanks];
  __syncthreads();  // all have left the last chunk's
  if (threadIdx.x < call.seats.count) {
    inputs[threadIdx.x] = static_cast<const Stored*>(call.seats.send[threadIdx.x]) + chunk.first;
  }
  __syncthreads();
  combine_chunk<Format, PartialFormat<Format, kWide>, kOp, false>(
      call.seats.count, inputs, reinterpret_cast<Partial<Format, kWide>*>(to), chunk.size(), 1);
}

// By all threads, last of all: the last block of the launch tells how it was.
__device__ __forceinline__ void end_block(const NetworkLaunch& launch, std::uint64_t verdict) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  NetworkWords* words = launch.words;
  if (verdict != 0) atomicCAS(&words->failed, 0ULL, static_cast<unsigned long long>(verdict));
  // Results on other GPUs are to be there when their ranks are told.
  if (launch.call.seats.count > 1) {
    __threadfence_system();
  } else {
    fence_on_gpu();
  }
  if (atomicInc(&words->blocks_done, gridDim.x - 1) != gridDim.x - 1) return;
  fence_on_gpu();  // what the others wrote is behind their counts
  const std::uint64_t failed = load_relaxed(reinterpret_cast<std::uint64_t*>(&words->failed));
  Done done = failed != 0 ? done_from(failed) : Done{};
  if (failed != 0) store_relaxed(reinterpret_cast<std::uint64_t*>(&words->failed), 0);
  for (const NetworkLaunch::Waiter& waiter : launch.waiters) {
    if (done.code != 0 || waiter.done == nullptr) continue;
    done.number = waiter.number;
    store_release(waiter.done, to_word(done));
  }
  done.number = launch.number;
  store_release(launch.verdict, to_word(done));
}

// visit.operator()<Format, kOp, kWide>().
template <typename Visit>
constexpr auto with_network_kernel(const NetworkCall& call, Visit&& visit) {
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    if constexpr (!std::is_same_v<typename Format::Stored, typename Format::Combined>) {
      if (call.is_wide) return visit.template operator()<Format, kOp, true>();
    }
    return visit.template operator()<Format, kOp, false>();
  });
}

inline Status check_network_call(const NetworkCall& call) {
  if (!call.has_seats() && call.is_in_place() && call.is_wide &&
      accumulator_of(call.dtype) != call.dtype) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a network kernel in place, with accumulators that are no elements of ",
                 text_of(call.dtype));
  }
  if (call.seats.count > kMaxGpuRanks || (call.has_seats() && call.seats.parts == nullptr)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a network kernel for ",
                 call.seats.count, " ranks of its node");
  }
  if (call.nodes < 2 || call.node >= call.nodes || call.lanes == 0 || call.chunk_elements == 0 ||
      call.depth == 0 || call.depth > kFifoSteps || call.ports == nullptr) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a network kernel for node ",
                 call.node, " of ", call.nodes, ", ", call.lanes, " lanes, chunks of ",
                 call.chunk_elements, " elements, depth ", call.depth);
  }
  if (!codec_serves(call.codec, call.op, call.dtype) ||
      (call.codec != Codec::None &&
       (call.chunk_elements % kCodecBlock != 0 || (call.is_wide && !call.has_seats())))) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a network kernel with codec ",
                 text_of(call.codec), " for ", text_of(call.op), " of ", text_of(call.dtype),
                 ", chunks of ", call.chunk_elements, " elements",
                 call.is_wide ? ", accumulators" : "");
  }
  return {};
}

}  // namespace arcomm::device
