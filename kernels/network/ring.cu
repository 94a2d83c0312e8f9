// The ring between nodes, as ring_steps.h has it: one block a lane receives, adds and sends on.
// Its twin on the CPU is daemon/proxy/host/host_ring.cc.
#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/network/network_block.cuh"
#include "kernels/network/ring_steps.h"

namespace arcomm {
namespace device {
namespace {

// One way round: where this node sends and receives, and how far it is.
struct RingWay {
  DeviceSendFifo out;
  DeviceReceiveFifo in;
  std::uint64_t sent, received;  // steps
  std::uint64_t last_received;   // one past the operation's
};

__device__ __noinline__ RingWay way_of(const NetworkCall& call, bool is_bidirectional,
                                       std::uint32_t lane, std::uint32_t to, std::uint32_t from) {
  const FifoPort& out = call.port(lane, to, FifoDirection::Send);
  const FifoPort& in = call.port(lane, from, FifoDirection::Receive);
  return {DeviceSendFifo(out), DeviceReceiveFifo(in), *out.steps, *in.steps,
          *in.steps + ring_steps(call, is_bidirectional, lane, from, FifoDirection::Receive)};
}

// Puts a chunk of this node's into a slot. False: give up.
__device__ __noinline__ bool send_copy(NetworkBlock& block, RingWay& way, const unsigned char* from,
                                       std::uint32_t bytes) {
  unsigned char* to = block.room(way.out, way.sent);
  if (to == nullptr) return false;
  copy_chunk(to, from, bytes);
  block.publish(way.out, way.sent++, bytes, to);
  return true;
}

template <typename Format, ReduceOp kOp, bool kWide, bool kBidirectional>
__device__ __forceinline__ std::uint64_t run(const NetworkCall& call, std::uint32_t lane) {
  using In = PartialFormat<Format, kWide>;
  using PartStored = typename In::Stored;
  using Stored = typename Format::Stored;
  constexpr ReduceOp kHopOp = kOp == ReduceOp::Avg ? ReduceOp::Sum : kOp;
  const Ring ring{call.node, call.nodes, kBidirectional};
  const auto* partial = static_cast<const PartStored*>(call.partial);
  auto* result = static_cast<Stored*>(call.result);
  NetworkBlock block(call);
  RingWay right = way_of(call, kBidirectional, lane, ring.right(), ring.left());
  RingWay left = way_of(call, kBidirectional, lane, ring.left(), ring.right());
  const bool goes_left = kBidirectional && ring.left_rounds() != 0;
  if (threadIdx.x == 0) {
    right.in.begin(right.received, right.last_received);
    if (goes_left) left.in.begin(left.received, left.last_received);
  }

  for (std::uint64_t partition = 0; partition < ring_partitions(call, lane); ++partition) {
    const RingChunks own(call, lane, ring.reduce_sends(0));
    for (std::uint64_t n = 0; n < own.in_partition(partition); ++n) {
      const ElementRange chunk = own.chunk(partition, n);
      if (!send_copy(block, right, reinterpret_cast<const unsigned char*>(partial + chunk.first),
                     static_cast<std::uint32_t>(chunk.size() * sizeof(PartStored)))) {
        return block.verdict();
      }
    }

    for (std::uint32_t round = 0; round < ring.reduce_rounds(); ++round) {
      const bool is_last = round + 1 == ring.reduce_rounds();
      const RingChunks shard(call, lane, ring.reduce_receives(round));
      for (std::uint64_t n = 0; n < shard.in_partition(partition); ++n) {
        const ElementRange chunk = shard.chunk(partition, n);
        const auto come_bytes = static_cast<std::uint32_t>(chunk.size() * sizeof(PartStored));
        const unsigned char* come = block.data(right.in, right.received, come_bytes);
        if (come == nullptr) return block.verdict();
        unsigned char* to = block.room(right.out, right.sent);
        if (to == nullptr) return block.verdict();
        const PartStored* parts[2] = {reinterpret_cast<const PartStored*>(come),
                                      partial + chunk.first};
        if (!is_last) {
          combine_chunk<In, In, kHopOp, false>(2, parts, reinterpret_cast<PartStored*>(to),
                                               chunk.size(), call.divisor);
          block.consumed(right.in, right.received++, right.last_received);
          block.publish(right.out, right.sent++, come_bytes, to);
          continue;
        }
        combine_chunk<In, Format, kOp, true>(2, parts, result + chunk.first, chunk.size(),
                                             call.divisor);
        block.consumed(right.in, right.received++, right.last_received);  // a barrier is in it
        const auto bytes = static_cast<std::uint32_t>(chunk.size() * sizeof(Stored));
        const auto* from = reinterpret_cast<const unsigned char*>(result + chunk.first);
        copy_chunk(to, from, bytes);
        block.publish(right.out, right.sent++, bytes, to);
        if (goes_left && !send_copy(block, left, from, bytes)) return block.verdict();
      }
    }

    for (std::uint32_t round = 0; round < ring.right_rounds(); ++round) {
      for (std::uint32_t side = 0; side < (goes_left ? 2U : 1U); ++side) {
        const bool to_left = side == 1;
        const std::uint32_t rounds = to_left ? ring.left_rounds() : ring.right_rounds();
        if (round >= rounds) continue;
        RingWay& way = to_left ? left : right;
        const RingChunks shard(call, lane,
                               to_left ? ring.from_right(round) : ring.from_left(round));
        for (std::uint64_t n = 0; n < shard.in_partition(partition); ++n) {
          const ElementRange chunk = shard.chunk(partition, n);
          const auto bytes = static_cast<std::uint32_t>(chunk.size() * sizeof(Stored));
          const unsigned char* come = block.data(way.in, way.received, bytes);
          if (come == nullptr) return block.verdict();
          if (round + 1 < rounds && !send_copy(block, way, come, bytes)) return block.verdict();
          copy_chunk(reinterpret_cast<unsigned char*>(result + chunk.first), come, bytes);
          block.consumed(way.in, way.received++, way.last_received);
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *right.out.port().steps = right.sent;
    *right.in.port().steps = right.received;
    if (goes_left) {
      *left.out.port().steps = left.sent;
      *left.in.port().steps = left.received;
    }
  }
  return 0;
}

template <typename Format, ReduceOp kOp, bool kWide, bool kBidirectional>
__global__ void __launch_bounds__(kNetworkThreads)
    ring(const __grid_constant__ NetworkLaunch launch) {
  end_block(launch, run<Format, kOp, kWide, kBidirectional>(launch.call, blockIdx.x));
}

}  // namespace
}  // namespace device

Status launch_network_ring(const NetworkLaunch& launch, bool is_bidirectional, void* stream) {
  ARC_RETURN_IF_ERROR(device::check_network_call(launch.call));
  if (launch.call.has_seats()) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "the ring kernel takes one partial of its node, not its ranks' inputs");
  }
  if (launch.call.codec != Codec::None) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "the ring kernel, which would encode sums anew on every node, takes no codec");
  }
  const cudaError_t launched =
      device::with_network_kernel(launch.call, [&]<typename Format, ReduceOp kOp, bool kWide>() {
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(launch.call.lanes);
        config.blockDim = dim3(device::kNetworkThreads);
        config.stream = static_cast<cudaStream_t>(stream);
        return cudaLaunchKernelEx(&config,
                                  is_bidirectional ? &device::ring<Format, kOp, kWide, true>
                                                   : &device::ring<Format, kOp, kWide, false>,
                                  launch);
      });
  if (launched != cudaSuccess) return device::cuda_error(launched, "launching the ring kernel");
  return {};
}

}  // namespace arcomm
