// One rank: its input goes to its output, element by element and as the other algorithms would
// write it (a NaN comes out canonical), and the rank is told.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"

namespace arcomm::device {
namespace {

constexpr std::uint32_t kThreads = 512;

template <typename Format>
__global__ void __launch_bounds__(kThreads) alone(const __grid_constant__ CudaAllReduce call) {
  using Stored = typename Format::Stored;
  const auto* send = static_cast<const Stored*>(call.send[0]);
  auto* recv = static_cast<Stored*>(call.recv[0]);
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.count;
       i += stride) {
    recv[i] = Format::narrow(Format::widen(send[i]));
  }
  end_epoch(call, false);
}

template <typename Visit>
decltype(auto) with_format(DType dtype, Visit&& visit) {
  return with_kernel(dtype, ReduceOp::Sum, [&]<typename Format, ReduceOp>() {
    return visit.template operator()<Format>();
  });
}

}  // namespace

cudaError_t launch_alone(const CudaAllReduce& call, std::uint32_t blocks, cudaStream_t stream) {
  if (blocks == 0) {
    blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        call.count / (kThreads * 4), 1, std::clamp(call.most_blocks, 1U, kMaxCudaBlocks)));
  }
  return with_format(call.dtype, [&]<typename Format>() {
    return launch(alone<Format>, call, {blocks, kThreads}, stream);
  });
}

cudaError_t load_alone(DType dtype) {
  return with_format(dtype, [&]<typename Format>() { return load(alone<Format>); });
}

}  // namespace arcomm::device
