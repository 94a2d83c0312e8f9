// The exchange with a codec (exchange.cu): every node encodes its partial once, in whole blocks,
// and stages the bytes for all peers; and combines what all nodes' bytes decode to, its own, too,
// in node order, turned back, divided and rounded once. In slots blocks lie as in memory everywhere
// (codec/README.md). Both halves of the blocks encode this node's elements: one for the peers, the
// other, which needs them a microsecond after the first, for itself.
//
// A kernel for each type and kind of codes. Operation and rotation are looked at for each group of
// blocks, which takes nothing, so that little is compiled.
#include <cuda_runtime_api.h>

#include "kernels/codec/divisor.cuh"
#include "kernels/codec/packed_group.cuh"
#include "kernels/codec/packet_elements.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/network/exchange_block.cuh"
#include "kernels/network/packed_parts.cuh"
#include "kernels/network/ring_steps.h"

namespace arcomm::device {
namespace {

// A chunk of this node's elements, group by group: the inputs of its ranks and where the result
// goes. Warps take groups in turn.
template <typename Format, Codec kCodec>
class CodedChunk {
  using Stored = typename Format::Stored;
  static constexpr std::uint32_t kInVector = sizeof(uint4) / sizeof(Stored);

 public:
  using Group = PackedGroup<kCodec, kInVector>;

  // vectors: all that the call names lies on 16 bytes.
  __device__ __forceinline__ CodedChunk(const NetworkCall& call, const ElementRange& chunk,
                                        bool vectors)
      : call_(call),
        elements_(chunk, vectors),
        is_rotated_(call.codec != kCodec),
        bytes_(bytes_of(chunk)) {}

  static __device__ __forceinline__ std::uint32_t bytes_of(const ElementRange& chunk) {
    return static_cast<std::uint32_t>((chunk.size() + kCodecBlock - 1) / kCodecBlock *
                                      Group::kBlockBytes);
  }
  __device__ __forceinline__ std::uint32_t groups() const {
    return (bytes_ + Group::kBytes - 1) / Group::kBytes;
  }
  // The last one may be a part.
  __device__ __forceinline__ std::uint32_t bytes_of_group(std::uint32_t group) const {
    return min(bytes_ - group * Group::kBytes, Group::kBytes);
  }

  // A lane's part of what the node's ranks have together, in their order.
  __device__ __forceinline__ typename Group::Half encode(std::uint32_t group) const {
    HalfBlock sum = read(call_.has_seats() ? call_.seats.send[0] : call_.partial, group);
    for (std::uint32_t seat = 1; seat < call_.seats.count; ++seat) {
      const HalfBlock next = read(call_.seats.send[seat], group);
#pragma unroll
      for (std::uint32_t i = 0; i < kHalfBlock; ++i)
        sum.values[i] = __fadd_rn(sum.values[i], next.values[i]);
    }
    if (is_rotated_) rotate<kInVector>(sum);
    return Group::encode(sum);
  }
  // Of all nodes' decoded blocks: to all ranks of this one.
  __device__ __forceinline__ void write(std::uint32_t group, HalfBlock sum,
                                        const Divisor& divisor) const {
    if (is_rotated_) rotate_back<kInVector>(sum);
    divisor.divide(sum);
    const auto half = narrowed<Format, typename Elements::Half>(sum);
    elements_.write(static_cast<Stored*>(call_.result), group, 0, half);
    for (std::uint32_t seat = 1; seat < call_.seats.count; ++seat)
      elements_.write(static_cast<Stored*>(call_.seats.recv[seat]), group, 0, half);
  }

 private:
  using Elements = PacketElements<Stored, Group::kBlocks, 1>;
  static_assert(Elements::kPacketElements == Group::kElements);

  __device__ __forceinline__ HalfBlock read(const void* from, std::uint32_t group) const {
    const auto halves = elements_.read(static_cast<const Stored*>(from), group);
    return values_of<Format, HalfBlock>(halves.of_turn[0]);
  }

  const NetworkCall& call_;
  const Elements elements_;
  const bool is_rotated_;
  const std::uint32_t bytes_;
};

__device__ __forceinline__ bool all_on_16(const NetworkCall& call) {
  bool all = call.has_seats() || (is_on_16(call.partial) && is_on_16(call.result));
  for (std::uint32_t seat = 0; seat < call.seats.count; ++seat)
    all = all && is_on_16(call.seats.send[seat]) && is_on_16(call.seats.recv[seat]);
  return all;
}

// places: of the peers in the order of hops, from the first on.
template <typename Chunk>
__device__ __forceinline__ void encode_chunk(const Chunk& chunk, unsigned char* const* places,
                                             std::uint32_t peers) {
  using Group = typename Chunk::Group;
  unsigned char* const room = room_of_warp<Group>(0);
  for (std::uint32_t group = warp_of_thread(); group < chunk.groups(); group += kNetworkWarps) {
    const typename Group::Half half = chunk.encode(group);
    __syncwarp(kWarp);  // the group before has been stored
    Group::put(room, half);
    __syncwarp(kWarp);
    for (std::uint32_t peer = 0; peer < peers; ++peer)
      store_group(places[peer] + group * Group::kBytes, room, chunk.bytes_of_group(group));
  }
}

// coming: what the other nodes sent of it.
template <typename Chunk>
__device__ __forceinline__ void combine_groups(const NetworkCall& call, const Chunk& chunk,
                                               ComingGroups<typename Chunk::Group> coming) {
  using Group = typename Chunk::Group;
  const Divisor divisor(call.op == ReduceOp::Avg ? call.divisor : 1);
  for (std::uint32_t group = warp_of_thread(); group < chunk.groups(); group += kNetworkWarps) {
    const typename Group::Half own = chunk.encode(group);
    HalfBlock sum;
#pragma unroll
    for (float& value : sum.values) value = -0.0F;  // -0 + x is x
    for (std::uint32_t node = 0; node < call.nodes; ++node) {
      typename Group::Half half = own;
      if (node != call.node) {
        half = Group::get(coming.next());
        coming.taken();
      }
      Group::add_to(sum, half);
    }
    chunk.write(group, sum, divisor);
  }
}

template <typename Format, Codec kCodec>
__device__ __forceinline__ std::uint64_t stage(const NetworkCall& call, std::uint32_t lane) {
  using Chunk = CodedChunk<Format, kCodec>;
  __shared__ std::uint64_t first_sent[kMaxRanks];
  __shared__ unsigned char* places[kMaxRanks];
  NetworkBlock block(call);
  const bool vectors = all_on_16(call);
  const std::uint64_t chunks = exchange_steps(call, lane);
  read_steps(call, lane, FifoDirection::Send, first_sent);
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange range = exchange_chunk(call, lane, n);
    // All peers wait for each other's chunks, so that whoever has no room yet holds up nobody.
    for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
      const std::uint32_t peer = (call.node + hop) % call.nodes;
      const DeviceSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      unsigned char* const to = block.room(fifo, first_sent[peer] + n);
      if (to == nullptr) return block.verdict();
      if (threadIdx.x == 0) places[hop - 1] = to;
    }
    __syncthreads();
    encode_chunk(Chunk(call, range, vectors), places, call.nodes - 1);
    for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
      const std::uint32_t peer = (call.node + hop) % call.nodes;
      const DeviceSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      block.publish(fifo, first_sent[peer] + n, Chunk::bytes_of(range), places[hop - 1]);
    }
  }
  if (!wait_until_sent(block, call, lane, first_sent, chunks)) return block.verdict();
  // In place the other block stores them, which reads them, too.
  if (!call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  return 0;
}

template <typename Format, Codec kCodec>
__device__ __forceinline__ std::uint64_t combine_all(const NetworkCall& call, std::uint32_t lane) {
  using Chunk = CodedChunk<Format, kCodec>;
  __shared__ const unsigned char* parts[kMaxRanks];
  __shared__ std::uint64_t first_sent[kMaxRanks], first_received[kMaxRanks];
  NetworkBlock block(call);
  const bool vectors = all_on_16(call);
  const std::uint64_t chunks = exchange_steps(call, lane);
  read_steps(call, lane, FifoDirection::Receive, first_received);
  if (call.is_in_place()) read_steps(call, lane, FifoDirection::Send, first_sent);
  begin_to_receive(call, lane, first_received, chunks);
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange range = exchange_chunk(call, lane, n);
    const std::uint32_t bytes = Chunk::bytes_of(range);
    for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
      if (peer == call.node) continue;
      const DeviceReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
      const unsigned char* const come = block.data(fifo, first_received[peer] + n, bytes);
      if (come == nullptr) return block.verdict();
      if (threadIdx.x == 0) parts[peer] = come;
    }
    // In place: the result goes where the other half of the blocks still encodes from.
    if (call.is_in_place() && !wait_until_taken(block, call, lane, first_sent, n))
      return block.verdict();
    __syncthreads();
    combine_groups(call, Chunk(call, range, vectors),
                   ComingGroups<typename Chunk::Group>(call, parts, bytes));
    consume(block, call, lane, first_received, n, chunks);
  }
  store_steps(call, lane, FifoDirection::Receive, first_received, chunks);
  if (call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  return 0;
}

template <typename Format, Codec kCodec>
__global__ void __launch_bounds__(kNetworkThreads)
    exchange_coded(const __grid_constant__ NetworkLaunch launch) {
  const NetworkCall& call = launch.call;
  // In turn, as without a codec.
  const std::uint32_t lane = blockIdx.x / 2;
  const std::uint64_t verdict = blockIdx.x % 2 == 0 ? stage<Format, kCodec>(call, lane)
                                                    : combine_all<Format, kCodec>(call, lane);
  end_block(launch, verdict);
}

using Kernel = void(NetworkLaunch);

// Null: there is none.
template <typename Format>
Kernel* kernel_of_type(Codec codec) {
  switch (unrotated(codec)) {
    case Codec::Fp8:
      return &exchange_coded<Format, Codec::Fp8>;
    case Codec::Q8:
      return &exchange_coded<Format, Codec::Q8>;
    case Codec::Q6:
      return &exchange_coded<Format, Codec::Q6>;
    case Codec::Q4:
      return &exchange_coded<Format, Codec::Q4>;
    case Codec::None:
    case Codec::Q8Rotated:
    case Codec::Q6Rotated:
    case Codec::Q4Rotated:  // none of these is what unrotated() gives; a new codec is named here
      break;
  }
  return nullptr;
}

}  // namespace

cudaError_t launch_coded_exchange(const NetworkLaunch& launch, void* stream) {
  return with_coded_type(launch.call.dtype, [&]<typename Format>() {
    Kernel* const kernel = kernel_of_type<Format>(launch.call.codec);
    return kernel == nullptr ? cudaErrorNotSupported : launch_exchange(kernel, launch, stream);
  });
}

cudaError_t load_coded_exchange() {
  cudaError_t loaded = cudaSuccess;
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
    loaded = with_coded_type(dtype, [&]<typename Format>() {
      for (unsigned codec = 0; codec < kCodecs && loaded == cudaSuccess; ++codec) {
        Kernel* const kernel = kernel_of_type<Format>(static_cast<Codec>(codec));
        if (kernel != nullptr) loaded = load(kernel);
      }
      return loaded;
    });
  }
  return loaded;
}

}  // namespace arcomm::device
