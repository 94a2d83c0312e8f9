// one_shot_ll128 as the daemon launches it.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/launch_exchange.cuh"
#include "kernels/all_reduce/one_shot_ll128.cuh"
#include "kernels/codec/table.cuh"
#include "kernels/device/launching.cuh"

namespace arcomm::device {
namespace {

template <typename Codec, ReduceOp kOp, std::uint32_t kBatch>
__global__ void __launch_bounds__(kLl128Threads)
    launched_one_shot_ll128(const __grid_constant__ CudaAllReduce call, bool vectors) {
  LaunchExchange exchange(call);
  one_shot_ll128<Codec, kOp, kBatch>(exchange, vectors);
}

template <typename Codec, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kIsUsual<typename Codec::Format, kOp>) {
    if (ranks == 2) return &launched_one_shot_ll128<Codec, kOp, 2>;
  }
  return &launched_one_shot_ll128<Codec, kOp, 4>;
}

}  // namespace

cudaError_t launch_one_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream) {
  return with_line_kernel(call.codec, call.dtype, call.op, [&]<typename Codec, ReduceOp kOp>() {
    if (blocks == 0) blocks = ll128_blocks(packets_of<Codec>(call.count), 1, call.most_blocks);
    return launch(kernel_for<Codec, kOp>(call.ranks), call, {blocks, kLl128Threads}, stream,
                  own_lie_on(call, sizeof(uint4)));
  });
}

cudaError_t load_one_shot_ll128(DType dtype, ReduceOp op) {
  return for_each_codec(dtype, op, [&]<typename Codec, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Codec, kOp>);
  });
}

}  // namespace arcomm::device
