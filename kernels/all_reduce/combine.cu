// The kernel that combines a chunk: one pass over it, some loads of each part in flight.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/combine.h"
#include "kernels/device/cuda_error.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"

namespace arcomm {
namespace device {
namespace {

constexpr std::uint32_t kThreads = 512, kBlocks = 64;
constexpr int kUnroll = 4;
constexpr std::uint32_t kVectorBytes = 16;

// All of it in the memory of one GPU.
struct Chunk {
  const unsigned char* parts[kMaxGpuRanks] = {};
  unsigned char* out = nullptr;
  std::uint64_t count = 0;
  std::uint32_t ranks = 0;
  bool vectors = false;  // all of them lie on 16 bytes
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ Chunk chunk) {
  using Stored = typename Format::Stored;
  constexpr std::uint32_t kCount = kVectorBytes / sizeof(Stored);
  using Vector = Moved<Stored, uint4>;
  const std::uint32_t ranks = kRanks != 0 ? kRanks : chunk.ranks;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  const std::uint64_t vectors = chunk.vectors ? chunk.count / kCount : 0;
  for (std::uint64_t i = thread; i < vectors; i += kUnroll * stride) {
    Pack<Format, kVectorBytes> results[kUnroll];
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto* from = reinterpret_cast<const uint4*>(chunk.parts[rank]);
      Vector parts[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u * stride < vectors) parts[u].whole = from[i + u * stride];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        results[u].template combine_next<kOp>(parts[u].elements, rank == 0);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Vector out;
      results[u].template store_to<kOp>(out.elements, ranks);
      if (i + u * stride < vectors) reinterpret_cast<uint4*>(chunk.out)[i + u * stride] = out.whole;
    }
  }
  for (std::uint64_t i = vectors * kCount + thread; i < chunk.count; i += stride) {
    reinterpret_cast<Stored*>(chunk.out)[i] = reduce_element<Format, kOp>(
        ranks,
        [&](std::uint32_t rank) { return reinterpret_cast<const Stored*>(chunk.parts[rank])[i]; });
  }
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kIsUsual<Format, kOp>) {
    if (ranks == 2) return &combine<Format, kOp, 2>;
    if (ranks == 4) return &combine<Format, kOp, 4>;
  }
  return &combine<Format, kOp, 0>;
}

}  // namespace

cudaError_t load_combine(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace device

Status launch_combine(const CombineCall& call, void* stream) {
  using namespace device;
  Chunk chunk{.out = static_cast<unsigned char*>(call.out),
              .count = call.count,
              .ranks = call.ranks,
              .vectors = lies_on(call.out, kVectorBytes)};
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    chunk.parts[rank] = static_cast<const unsigned char*>(call.parts[rank]);
    chunk.vectors = chunk.vectors && lies_on(call.parts[rank], kVectorBytes);
  }
  const std::uint64_t vectors = call.count * size_of(call.dtype) / kVectorBytes;
  const auto blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      vectors / (kThreads * kUnroll), 1, std::min(kBlocks, std::max(call.most_blocks, 1U))));
  const cudaError_t launched =
      with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
        cudaLaunchConfig_t config{};  // its own result: cudaGetLastError() may be anybody's
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(kThreads);
        config.stream = static_cast<cudaStream_t>(stream);
        return cudaLaunchKernelEx(&config, kernel_for<Format, kOp>(call.ranks), chunk);
      });
  if (launched != cudaSuccess) return cuda_error(launched, "combining what copy engines brought");
  return {};
}

}  // namespace arcomm
