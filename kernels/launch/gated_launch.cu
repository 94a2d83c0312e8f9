#include <cuda_runtime_api.h>

#include "kernels/device/cuda_error.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"
#include "kernels/launch/gated_launch.h"

namespace arcomm {
namespace device {
namespace {

// The clock only says whether the gate's lifetime is over, which need not be exact.
constexpr std::uint32_t kLooksBetweenClocks = 64;

// One thread decides for its rank, before any block of the operation begins. A gate that opens
// tells the peers while the blocks are on their way; blocks may begin before that has arrived.
// Everything is read past L1, which nobody empties while this waits.
__global__ void gate(const __grid_constant__ CudaAllReduce call,
                     const __grid_constant__ CudaGate gate) {
  std::uint32_t opens_at = 0;  // the epoch
  if (threadIdx.x == 0) {
    Scratch* own = scratch_of(call, call.rank);
    // Even gates begin with number 2, odd ones with number 1.
    const std::uint32_t before = load_relaxed(&own->gates[gate.parity]);
    const std::uint32_t number = 2 * before + (gate.parity == 0 ? 2 : 1);
    own->gates[gate.parity] = before + 1;
    std::uint64_t since = 0;
    bool is_too_old = false, skips = false, opens = false;
    for (std::uint32_t looks = 1;; ++looks) {
      const Progress progress = progress_of(own);
      const bool cancelled = load_relaxed(&own->cancelled) - number < kMostGatesAhead;
      const bool aborted = load_relaxed(&own->abort) != 0;  // the operation then reports that
      const std::uint64_t doorbell = load_relaxed(gate.doorbell);  // the operation acquires
      // Its turn comes when the launch before it has ended: two at a time would count their blocks
      // together.
      if (progress.gated == number - 1) {
        skips = !aborted && (cancelled || is_too_old);
        const Doorbell open{
            .number = progress.number + 1, .plan = gate.plan, .identity = gate.identity};
        opens = !skips && doorbell == to_word(open);
        if (skips || aborted || opens) break;
      } else if (aborted && is_too_old) {
        break;  // what should have come before it has never been launched
      }
      if (looks % kLooksBetweenClocks != 0) continue;
      const std::uint64_t now = global_nanoseconds();
      if (since == 0) since = now;
      is_too_old = now - since >= gate.lifetime_ns;
    }
    if (skips || opens)
      load_acquire(reinterpret_cast<const std::uint64_t*>(&own->progress));  // behind it: the epoch
    if (opens) opens_at = load_relaxed(&own->epoch) + 1;
    if (skips) {
      const std::uint32_t epoch = load_relaxed(&own->epoch) + 1;
      for (std::uint32_t rank = 0; rank < call.ranks; ++rank)
        store_release(skipped_at(scratch_of(call, rank), epoch), epoch);
      __threadfence_system();
    }
  }
  __syncwarp();
  trigger_dependents();
  if (threadIdx.x == 0 && opens_at != 0) {
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop) {
      Scratch* peer = scratch_of(call, (call.rank + hop) % call.ranks);
      store_release(opened_at(peer, opens_at, call.rank), opens_at);
    }
  }
}

}  // namespace
}  // namespace device

namespace {

constexpr std::uint32_t kGateThreads = 32;

}  // namespace

std::uint32_t* cancel_word(void* scratch) {
  return &static_cast<device::Scratch*>(scratch)->cancelled;
}

Status launch_all_reduce_behind(const CudaGate& gate, CudaAlgorithm algorithm,
                                const CudaAllReduce& call, CudaShape shape, void* stream) {
  ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
  if (call.count == 0 || call.ranks < 2) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, call.count, " elements of ",
                 call.ranks, " ranks do not wait for their call");
  }
  cudaError_t launched = call.ordinal < 0 ? cudaSuccess : cudaSetDevice(call.ordinal);
  if (launched == cudaSuccess) {
    launched = device::launch(device::gate, call, {1, kGateThreads},
                              static_cast<cudaStream_t>(stream), gate);
  }
  if (launched != cudaSuccess) return device::cuda_error(launched, "launching an AllReduce's gate");
  CudaAllReduce gated = call;
  gated.gated = true;
  return launch_all_reduce(algorithm, gated, shape, stream);
}

Status load_gate_kernel() {
  const cudaError_t loaded = device::load(device::gate);
  if (loaded != cudaSuccess) return device::cuda_error(loaded, "loading the gate's kernel");
  return {};
}

Result<PreparedAllReduce> PreparedAllReduce::create(const CudaGate& gate, CudaAlgorithm algorithm,
                                                    const CudaAllReduce& call, CudaShape shape,
                                                    void* stream) {
  auto* queue = static_cast<cudaStream_t>(stream);
  cudaError_t made = call.ordinal < 0 ? cudaSuccess : cudaSetDevice(call.ordinal);
  int ordinal = -1;
  if (made == cudaSuccess) made = cudaGetDevice(&ordinal);
  if (made == cudaSuccess) made = cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal);
  if (made != cudaSuccess) return device::cuda_error(made, "recording a launch");
  const Status recorded = launch_all_reduce_behind(gate, algorithm, call, shape, stream);
  cudaGraph_t graph = nullptr;
  made = cudaStreamEndCapture(queue, &graph);
  cudaGraphExec_t exec = nullptr;
  if (recorded && made == cudaSuccess) made = cudaGraphInstantiate(&exec, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!recorded) return recorded.error();
  PreparedAllReduce prepared(ordinal, exec);
  if (made == cudaSuccess) made = cudaGraphUpload(exec, queue);
  if (made != cudaSuccess) return device::cuda_error(made, "preparing a launch");
  return Result<PreparedAllReduce>(std::move(prepared));
}

PreparedAllReduce::~PreparedAllReduce() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

Status PreparedAllReduce::launch(void* stream) const {
  cudaError_t launched = cudaSetDevice(ordinal_);
  if (launched == cudaSuccess) {
    launched =
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), static_cast<cudaStream_t>(stream));
  }
  if (launched != cudaSuccess)
    return device::cuda_error(launched, "launching a prepared AllReduce");
  return {};
}

}  // namespace arcomm
