// Everybody's partial to everybody: one half of the blocks stages chunks into pinned slots, the
// other half polls what has come and combines it, in node order. One step on the wire. With a codec
// it is exchange_coded.cu.
#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/network/exchange_block.cuh"
#include "kernels/network/network_block.cuh"
#include "kernels/network/ring_steps.h"

namespace arcomm {
namespace device {
namespace {

template <typename Format, ReduceOp kOp, bool kWide>
__device__ __forceinline__ std::uint64_t stage(const NetworkCall& call, std::uint32_t lane) {
  using Stored = Partial<Format, kWide>;
  __shared__ std::uint64_t first_sent[kMaxRanks];
  NetworkBlock block(call);
  const std::uint64_t chunks = exchange_steps(call, lane);
  read_steps(call, lane, FifoDirection::Send, first_sent);
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange chunk = exchange_chunk(call, lane, n);
    const auto bytes = static_cast<std::uint32_t>(chunk.size() * sizeof(Stored));
    const unsigned char* from = reinterpret_cast<const unsigned char*>(
        static_cast<const Stored*>(call.partial) + chunk.first);
    // Each node starts with another peer, so that they do not all send to one.
    for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
      const std::uint32_t peer = (call.node + hop) % call.nodes;
      const DeviceSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      const std::uint64_t step = first_sent[peer] + n;
      if (fifo.port().mode == SlotMode::Pointer && !call.has_seats()) {
        if (!block.turn(fifo, step)) return block.verdict();
      } else {
        unsigned char* to = block.room(fifo, step);
        if (to == nullptr) return block.verdict();
        if (call.has_seats()) {
          combine_seats<Format, kOp, kWide>(call, chunk, to);
          from = to;
        } else {
          copy_chunk(to, from, bytes);
        }
      }
      block.publish(fifo, step, bytes, from);
    }
  }
  if (!wait_until_sent(block, call, lane, first_sent, chunks)) return block.verdict();
  // In place the other block stores them, which reads them, too.
  if (!call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  return 0;
}

template <typename Format, ReduceOp kOp, bool kWide>
__device__ __forceinline__ std::uint64_t combine_all(const NetworkCall& call, std::uint32_t lane) {
  using In = PartialFormat<Format, kWide>;
  using Stored = typename In::Stored;
  __shared__ const Stored* parts[kMaxRanks];
  __shared__ std::uint64_t first_sent[kMaxRanks], first_received[kMaxRanks];
  NetworkBlock block(call);
  const std::uint64_t chunks = exchange_steps(call, lane);
  read_steps(call, lane, FifoDirection::Receive, first_received);
  if (call.is_in_place()) read_steps(call, lane, FifoDirection::Send, first_sent);
  begin_to_receive(call, lane, first_received, chunks);
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange chunk = exchange_chunk(call, lane, n);
    const auto bytes = static_cast<std::uint32_t>(chunk.size() * sizeof(Stored));
    const Stored* own = static_cast<const Stored*>(call.partial) + chunk.first;
    if (call.has_seats()) {
      unsigned char* const to = call.seats.parts + lane * call.seats.part_bytes;
      combine_seats<Format, kOp, kWide>(call, chunk, to);
      own = reinterpret_cast<const Stored*>(to);
    }
    for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
      const Stored* part = own;
      if (peer != call.node) {
        const DeviceReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
        const unsigned char* come = block.data(fifo, first_received[peer] + n, bytes);
        if (come == nullptr) return block.verdict();
        part = reinterpret_cast<const Stored*>(come);
      }
      if (threadIdx.x == 0) parts[peer] = part;
    }
    // In place: the result goes where the other half of the blocks still copies or sends from.
    if (call.is_in_place() && !wait_until_taken(block, call, lane, first_sent, n))
      return block.verdict();
    __syncthreads();
    combine_chunk<In, Format, kOp, true>(
        call.nodes, parts, static_cast<typename Format::Stored*>(call.result) + chunk.first,
        chunk.size(), call.divisor);
    if (call.seats.count > 1) __syncthreads();
    for (std::uint32_t seat = 1; seat < call.seats.count; ++seat) {
      constexpr auto kSize = sizeof(typename Format::Stored);
      copy_chunk(static_cast<unsigned char*>(call.seats.recv[seat]) + chunk.first * kSize,
                 static_cast<const unsigned char*>(call.result) + chunk.first * kSize,
                 static_cast<std::uint32_t>(chunk.size() * kSize));
    }
    consume(block, call, lane, first_received, n, chunks);
  }
  store_steps(call, lane, FifoDirection::Receive, first_received, chunks);
  if (call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  return 0;
}

template <typename Format, ReduceOp kOp, bool kWide>
__global__ void __launch_bounds__(kNetworkThreads)
    exchange(const __grid_constant__ NetworkLaunch launch) {
  const NetworkCall& call = launch.call;
  // In turn: blocks begin in the order of their numbers, and a lane's two suffice to get it done
  // where no more find room at a time.
  const std::uint32_t lane = blockIdx.x / 2;
  const std::uint64_t verdict = blockIdx.x % 2 == 0 ? stage<Format, kOp, kWide>(call, lane)
                                                    : combine_all<Format, kOp, kWide>(call, lane);
  end_block(launch, verdict);
}

}  // namespace
}  // namespace device

Status launch_network_exchange(const NetworkLaunch& launch, void* stream) {
  ARC_RETURN_IF_ERROR(device::check_network_call(launch.call));
  if (launch.call.nodes > kMaxRanks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the exchange kernel takes ",
                 kMaxRanks, " nodes at most, not ", launch.call.nodes);
  }
  const cudaError_t launched =
      launch.call.codec != Codec::None
          ? device::launch_coded_exchange(launch, stream)
          : device::with_network_kernel(
                launch.call, [&]<typename Format, ReduceOp kOp, bool kWide>() {
                  return device::launch_exchange(&device::exchange<Format, kOp, kWide>, launch,
                                                 stream);
                });
  if (launched != cudaSuccess) return device::cuda_error(launched, "launching the exchange kernel");
  return {};
}

Status load_network_kernels() {
  cudaError_t loaded = device::load_coded_exchange();
  device::for_each_kernel([&](DType dtype, ReduceOp op) {
    for (const bool is_wide : {false, true}) {
      if (loaded != cudaSuccess) return;
      const NetworkCall call{.dtype = dtype, .op = op, .is_wide = is_wide};
      loaded = device::with_network_kernel(call, [&]<typename Format, ReduceOp kOp, bool kWide>() {
        return device::load(&device::exchange<Format, kOp, kWide>);
      });
    }
  });
  if (loaded == cudaErrorMemoryAllocation) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "it has no memory for the stacks of kernels between nodes, some 100 MiB: end what "
                 "fills it");
  }
  if (loaded != cudaSuccess) return device::cuda_error(loaded, "loading the kernels between nodes");
  return {};
}

}  // namespace arcomm
