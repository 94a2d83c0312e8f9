// The GPUs of this machine as ranks of one process: memory, streams and scratch for each. For tests
// and benchmarks that run kernels without a daemon.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_queues.h"
#include "kernels/launch/launch_cuda.h"
#include "kernels/lines/ll128_self_test.h"
#include "tests/gpu/kernels/node/gpu_stream.h"
#include "transport/device/cuda/cuda_device.h"
#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm::gpu {

struct GpuRank {
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<GpuStream> stream, side;  // side: for aborting past what the other waits in
  Memory scratch, send, recv;
  std::unique_ptr<GpuQueues> queues;  // one: `stream`, and copies beside it
};

class GpuNode {
 public:
  // bytes: of each rank's send and of its recv.
  // Shared: ranks take the GPUs in turn, where there are fewer. What they launch has fewer blocks
  // then, so that those of all find room side by side.
  enum class Gpus : std::uint8_t { Own, Shared };
  static Result<GpuNode> open(int ranks, std::uint64_t bytes, Gpus gpus = Gpus::Own);

  int ranks() const { return static_cast<int>(ranks_.size()); }
  GpuRank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  // With blocks that find room beside those of the ranks on the same GPU.
  CudaShape fitting(CudaShape shape) const;
  // The rank's GPU is the calling thread's from now on.
  void use(int rank) { cudaSetDevice((*this)[rank].device->ordinal()); }

  // All that each rank launches by itself, less those that these GPUs cannot run (for lines, where
  // open() saw torn ones).
  std::vector<CudaAlgorithm> algorithms() const;
  // Of the ranks' GPUs, in memory of its own.
  Result<Ll128Verdict> try_lines(int writer, int reader);

  // What rank `rank` launches; offsets are bytes into its send and recv memory.
  CudaAllReduce call(int rank, std::uint64_t count, DType dtype, ReduceOp op,
                     std::uint64_t send_offset = 0, std::uint64_t recv_offset = 0,
                     bool in_place = false);
  // On every rank's own stream, from this thread; with $ARCOMM_LAUNCH_APART from one for each rank,
  // for tools that make a launch last as long as its kernel.
  Status launch(CudaAlgorithm algorithm, std::uint64_t count, DType dtype, ReduceOp op,
                CudaShape shape = {}, std::uint64_t send_offset = 0, std::uint64_t recv_offset = 0,
                bool in_place = false);
  // By copy engines; the calls by rank.
  Status launch_copies(std::span<const CudaAllReduce> calls);
  Status synchronize(std::chrono::nanoseconds timeout = std::chrono::seconds(20));
  // Of the rank's scratch; call after synchronize().
  CudaOutcome outcome(int rank);
  // New scratch contents: after an outcome that is not Done.
  void clear_scratch();

  std::uint64_t timeout_ns = 5'000'000'000;
  std::uint64_t most_chunk_bytes = 0;  // of what copy engines carry
  bool swapped = false;                // call() takes recv for send and send for recv

 private:
  std::vector<GpuRank> ranks_;
  CudaAbilities abilities_{.atomic_128b_stores = true};
  std::uint32_t on_a_gpu_ = 1;  // ranks, at most
};

}  // namespace arcomm::gpu
