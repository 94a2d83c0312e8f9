#include "kernels/codec/coded.cuh"
#include "kernels/device/dispatch.cuh"
#include "tests/gpu/kernels/coded_packets.h"

namespace arcomm::gpu {
namespace {

using namespace device;

constexpr std::uint32_t kThreads = 256, kWarps = kThreads / kLl128Lanes;

template <typename C, ReduceOp kOp>
__global__ void sum_packets(CodedSum sum) {
  const typename C::Packets packets({0, sum.count}, sum.vectors);
  for (std::uint64_t packet = blockIdx.x * kWarps + threadIdx.x / kLl128Lanes;
       packet < packets_of<C>(sum.count); packet += gridDim.x * kWarps) {
    const typename C::Packet first = packets.read(sum.inputs[0], packet);
    const typename C::Packet second = packets.read(sum.inputs[1], packet);
    typename C::template PairResult<kOp> pair;
    pair.combine_next(first, true);
    pair.combine_next(second, false);
    packets.write(sum.pair, packet, pair.as_output(2));
    typename C::template PacketResult<kOp> result;
    result.combine_next(first, true);
    result.combine_next(second, false);
    packets.write(sum.one_hop, packet, result.as_output(2));
    packets.write(sum.two_hops, packet, C::decode(result.as_packet(2)));
  }
}

template <typename C>
cudaError_t launch(const CodedSum& sum, cudaStream_t stream) {
  const std::uint32_t blocks = (packets_of<C>(sum.count) + kWarps - 1) / kWarps;
  switch (sum.op) {
    case ReduceOp::Sum:
      sum_packets<C, ReduceOp::Sum><<<blocks, kThreads, 0, stream>>>(sum);
      return cudaGetLastError();
    case ReduceOp::Avg:
      sum_packets<C, ReduceOp::Avg><<<blocks, kThreads, 0, stream>>>(sum);
      return cudaGetLastError();
    default:
      return cudaErrorNotSupported;
  }
}

template <typename Format>
cudaError_t of_type(const CodedSum& sum, cudaStream_t stream) {
  switch (sum.codec) {
    case Codec::Fp8:
      return launch<CodedOf<Format, Codec::Fp8>>(sum, stream);
    case Codec::Q8:
      return launch<CodedOf<Format, Codec::Q8>>(sum, stream);
    case Codec::Q6:
      return launch<CodedOf<Format, Codec::Q6>>(sum, stream);
    case Codec::Q4:
      return launch<CodedOf<Format, Codec::Q4>>(sum, stream);
    case Codec::Q8Rotated:
      return launch<CodedOf<Format, Codec::Q8Rotated>>(sum, stream);
    case Codec::Q6Rotated:
      return launch<CodedOf<Format, Codec::Q6Rotated>>(sum, stream);
    case Codec::Q4Rotated:
      return launch<CodedOf<Format, Codec::Q4Rotated>>(sum, stream);
    case Codec::None:
      break;
  }
  return cudaErrorNotSupported;
}

}  // namespace

cudaError_t run(const CodedSum& sum, cudaStream_t stream) {
  return with_coded_type(sum.dtype,
                         [&]<typename Format>() { return of_type<Format>(sum, stream); });
}

}  // namespace arcomm::gpu
