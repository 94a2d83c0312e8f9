// one_shot_ll16 as the daemon launches it.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/launch_exchange.cuh"
#include "kernels/all_reduce/one_shot_ll16.cuh"
#include "kernels/codec/table.cuh"
#include "kernels/device/launching.cuh"

namespace arcomm::device {
namespace {

constexpr std::uint32_t kThreads = kLaunchThreads;

template <typename Codec, ReduceOp kOp>
__global__ void __launch_bounds__(kThreads)
    launched_one_shot_ll16(const __grid_constant__ CudaAllReduce call) {
  LaunchExchange exchange(call);
  one_shot_ll16<Codec, kOp>(exchange);
}

}  // namespace

cudaError_t launch_one_shot_ll16(const CudaAllReduce& call, std::uint32_t blocks,
                                 cudaStream_t stream) {
  if (blocks == 0) blocks = ll16_blocks(call.count * size_of(call.dtype), call.most_blocks);
  return with_line_kernel(call.codec, call.dtype, call.op, [&]<typename Codec, ReduceOp kOp>() {
    if constexpr (LineCodec<Codec>) {
      return launch(launched_one_shot_ll16<Codec, kOp>, call, {blocks, kThreads}, stream);
    } else {
      return cudaErrorNotSupported;  // it has packets alone
    }
  });
}

cudaError_t load_one_shot_ll16(DType dtype, ReduceOp op) {
  return for_each_codec(dtype, op, [&]<typename Codec, ReduceOp kOp>() {
    if constexpr (LineCodec<Codec>) {
      return load(launched_one_shot_ll16<Codec, kOp>);
    } else {
      return cudaErrorNotSupported;
    }
  });
}

}  // namespace arcomm::device
