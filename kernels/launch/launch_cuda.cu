#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/cuda_error.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/launch_cuda.h"

namespace arcomm {
namespace device {
namespace {

// No elements: no rank needs another. No epoch is used up, since the ranks do not meet in it.
__global__ void nothing(const __grid_constant__ CudaAllReduce call) {
  Scratch* own = scratch_of(call, call.rank);
  fence_on_gpu();
  report(call, load_relaxed(&own->epoch), progress_of(own), false,
         load_relaxed(&own->outcome.code));
}

}  // namespace
}  // namespace device

Status start_over(void* scratch, std::uint32_t ranks, void* stream) {
  auto* const bytes = static_cast<unsigned char*>(scratch);
  auto* const queue = static_cast<cudaStream_t>(stream);
  using device::Scratch;
  // All but what went wrong, what was cancelled, the count of gates and the progress: those number
  // operations and gates, and come round by themselves.
  const auto wipe = [&](std::size_t from, std::size_t to) {
    return cudaMemsetAsync(bytes + from, 0, to - from, queue);
  };
  cudaError_t wiped = wipe(offsetof(Scratch, skipped), offsetof(Scratch, epoch));
  if (wiped == cudaSuccess) wiped = wipe(offsetof(Scratch, epoch), offsetof(Scratch, gates));
  if (wiped == cudaSuccess)
    wiped = wipe(offsetof(Scratch, opened), static_cast<std::size_t>(cuda_state_bytes(ranks)));
  if (wiped != cudaSuccess) return device::cuda_error(wiped, "letting a scratch start over");
  return {};
}

Status launch_all_reduce(CudaAlgorithm algorithm, const CudaAllReduce& call, CudaShape shape,
                         void* stream) {
  ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
  if (shape.blocks > kMaxCudaBlocks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, shape.blocks, " blocks: at most ",
                 kMaxCudaBlocks);
  }
  auto* queue = static_cast<cudaStream_t>(stream);
  cudaError_t launched = call.ordinal < 0 ? cudaSuccess : cudaSetDevice(call.ordinal);
  if (launched != cudaSuccess)
    return device::cuda_error(launched, "choosing the GPU of an AllReduce");
  if (call.count == 0) {
    launched = device::launch(device::nothing, call, {}, queue);
    if (launched != cudaSuccess)
      return device::cuda_error(launched, "launching the end of nothing");
    return {};
  }
  switch (algorithm) {
    case CudaAlgorithm::OneShotLl16:
      launched = device::launch_one_shot_ll16(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::TwoShot:
      launched = device::launch_two_shot(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::Stream:
      launched = device::launch_stream(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::Flash:
      launched = device::launch_flash(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::OneShotLl128:
      launched = device::launch_one_shot_ll128(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::TwoShotLl128:
      launched = device::launch_two_shot_ll128(call, shape.blocks, queue);
      break;
    case CudaAlgorithm::CopyEngine:
      return error(ErrorCode::InvalidArgument, Reason::BadValue, name_of(algorithm),
                   " is copies and launches of all ranks: launch_combine()");
    case CudaAlgorithm::Alone:
      launched = device::launch_alone(call, shape.blocks, queue);
      break;
  }
  if (launched != cudaSuccess) return device::cuda_error(launched, "launching an AllReduce kernel");
  return {};
}

Status abort_all_reduce(void* scratch, void* stream) {
  auto* abort = static_cast<std::byte*>(scratch) + offsetof(device::Scratch, abort);
  const cudaError_t set =
      cudaMemsetAsync(abort, 1, sizeof(device::Scratch::abort), static_cast<cudaStream_t>(stream));
  if (set != cudaSuccess) return device::cuda_error(set, "raising the abort word");
  return {};
}

Status load_all_reduce_kernels() {
  cudaError_t loaded = device::load(device::nothing);
  device::for_each_kernel([&](DType dtype, ReduceOp op) {
    if (loaded == cudaSuccess) loaded = device::load_one_shot_ll16(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_two_shot(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_stream(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_flash(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_one_shot_ll128(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_two_shot_ll128(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_combine(dtype, op);
    if (loaded == cudaSuccess) loaded = device::load_alone(dtype);
  });
  if (loaded != cudaSuccess) return device::cuda_error(loaded, "loading the AllReduce kernels");
  return {};
}

}  // namespace arcomm
