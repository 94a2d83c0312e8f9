// one_shot_ll128 as the daemon launches it.
#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/launch_exchange.cuh"
#include "kernels/all_reduce/one_shot_ll128.cuh"
#include "kernels/codec/plain.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launching.cuh"

namespace arcomm::device {
namespace {

template <typename Codec, ReduceOp kOp, std::uint32_t kBatch>
__global__ void __launch_bounds__(kLl128Threads)
    launched_one_shot_ll128(const __grid_constant__ CudaAllReduce call, bool vectors) {
  LaunchExchange exchange(call);
  one_shot_ll128<Codec, kOp, kBatch>(exchange, vectors);
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &launched_one_shot_ll128<PlainCodec<Format>, kOp, 2>;
  }
  return &launched_one_shot_ll128<PlainCodec<Format>, kOp, 4>;
}

}  // namespace

cudaError_t launch_one_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream) {
  if (blocks == 0) blocks = ll128_blocks(ll128_packets(call.count * size_of(call.dtype)), 1);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kLl128Threads}, stream,
                  own_lie_on(call, sizeof(uint4)));
  });
}

cudaError_t load_one_shot_ll128(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
