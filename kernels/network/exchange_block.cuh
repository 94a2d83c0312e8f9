// What exchanges have in common, whatever their chunks carry: which chunks a lane has, the counts
// of its FIFOs' steps, and the waits for all peers. Compiled by exchange.cu and exchange_coded.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/device_fifo.cuh"
#include "kernels/network/launch_network.h"
#include "kernels/network/network_block.cuh"

namespace arcomm::device {

__device__ __forceinline__ ElementRange exchange_chunk(const NetworkCall& call, std::uint32_t lane,
                                                       std::uint64_t n) {
  return chunk_of_lane(call.count, call.chunk_elements, call.lanes, lane, n);
}

// Each peer's count of steps, before this operation: kMaxRanks of them, in shared memory.
__device__ __forceinline__ void read_steps(const NetworkCall& call, std::uint32_t lane,
                                           FifoDirection direction, std::uint64_t* first) {
  if (threadIdx.x < call.nodes && threadIdx.x != call.node)
    first[threadIdx.x] = *call.port(lane, threadIdx.x, direction).steps;
  __syncthreads();
}
__device__ __forceinline__ void store_steps(const NetworkCall& call, std::uint32_t lane,
                                            FifoDirection direction, const std::uint64_t* first,
                                            std::uint64_t chunks) {
  if (threadIdx.x < call.nodes && threadIdx.x != call.node)
    *call.port(lane, threadIdx.x, direction).steps = first[threadIdx.x] + chunks;
}

__device__ __forceinline__ void begin_to_receive(const NetworkCall& call, std::uint32_t lane,
                                                 const std::uint64_t* first, std::uint64_t chunks) {
  if (threadIdx.x != 0) return;
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer == call.node) continue;
    const DeviceReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
    fifo.begin(first[peer], first[peer] + chunks);
  }
}

// What is sent from where it lies must stay as it is until it has been. False: give up.
__device__ __forceinline__ bool wait_until_sent(NetworkBlock& block, const NetworkCall& call,
                                                std::uint32_t lane, const std::uint64_t* first,
                                                std::uint64_t chunks) {
  for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
    const std::uint32_t peer = (call.node + hop) % call.nodes;
    const DeviceSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
    if (fifo.port().mode == SlotMode::Pointer && chunks != 0 &&
        !block.turn(fifo, first[peer] + chunks - 1 + kFifoSteps)) {
      return false;
    }
  }
  return true;
}

// Until the lane's other block has taken its n-th chunk for all peers. False: give up.
__device__ __forceinline__ bool wait_until_taken(NetworkBlock& block, const NetworkCall& call,
                                                 std::uint32_t lane, const std::uint64_t* first,
                                                 std::uint64_t n) {
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer == call.node) continue;
    const DeviceSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
    if (!block.taken(fifo, first[peer] + n)) return false;
  }
  return true;
}

// The n-th chunk of all peers is not read any more.
__device__ __forceinline__ void consume(NetworkBlock& block, const NetworkCall& call,
                                        std::uint32_t lane, const std::uint64_t* first,
                                        std::uint64_t n, std::uint64_t chunks) {
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer == call.node) continue;
    const DeviceReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
    block.consumed(fifo, first[peer] + n, first[peer] + chunks);
  }
}

// Two blocks a lane.
template <typename Kernel>
cudaError_t launch_exchange(Kernel* kernel, const NetworkLaunch& launch, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2 * launch.call.lanes);
  config.blockDim = dim3(kNetworkThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, launch);
}

// Of a call that has a codec and has been checked.
cudaError_t launch_coded_exchange(const NetworkLaunch& launch, void* stream);
cudaError_t load_coded_exchange();

}  // namespace arcomm::device
