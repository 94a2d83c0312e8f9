// One hop, no fence: every rank stores its input into every peer's scratch, 8 bytes of data and two
// copies of the epoch in one 16-byte store. A reader that finds the epoch in both halves has the
// data. Twice the traffic, so for small operations.
//
// Halves alternate by epoch: a peer that writes epoch e + 2 has seen our data of e + 1, which we
// sent after our launch of e had read all of the half that it writes to.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/scratch.cuh"

namespace arcomm::device {
namespace {

// Where rank `from` leaves its lines at rank `at`.
__device__ __forceinline__ uint4* ll16_area(const CudaAllReduce& call, std::uint32_t at,
                                            std::uint32_t from, std::uint32_t epoch) {
  constexpr std::uint64_t kArea = 2 * kMaxLl16Bytes;
  auto* base = static_cast<unsigned char*>(call.scratch[at]) + kCudaControlBytes;
  return reinterpret_cast<uint4*>(base + ((epoch & 1U) * kMaxCudaRanks + from) * kArea);
}

template <typename Format, ReduceOp kOp>
__global__ void __launch_bounds__(512) one_shot_ll16(const __grid_constant__ CudaAllReduce call) {
  using Stored = typename Format::Stored;
  using Eight = Pack<Format, 8>;
  constexpr std::uint32_t kCount = Eight::kCount;
  union Line {
    Stored elements[kCount];
    std::uint32_t words[2];
  };
  Scratch* own = scratch_of(call, call.rank);
  const auto* send = static_cast<const Stored*>(call.send[call.rank]);
  auto* recv = static_cast<Stored*>(call.recv[call.rank]);
  const auto lines = static_cast<std::uint32_t>((call.count + kCount - 1) / kCount);
  const std::uint32_t stride = gridDim.x * blockDim.x;
  std::uint32_t line = blockIdx.x * blockDim.x + threadIdx.x;
  const auto read = [&] {
    const std::uint64_t first = std::uint64_t{line} * kCount;
    Line mine{};
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (first + i < call.count) mine.elements[i] = load_past_l1(send + first + i);
    }
    return mine;
  };
  Line mine = read();  // while the epoch is on its way
  const std::uint32_t epoch = begin_epoch(call);
  LaunchBudget budget = budget_of(call);
  bool failed = epoch == 0;

  for (; line < lines && !failed; line += stride, mine = read()) {
    const std::uint64_t first = std::uint64_t{line} * kCount;
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop) {  // each rank starts with another peer
      const std::uint32_t peer = (call.rank + hop) % call.ranks;
      store_line(ll16_area(call, peer, call.rank, epoch) + line,
                 {mine.words[0], epoch, mine.words[1], epoch});
    }
    Eight result;
    for (std::uint32_t rank = 0; rank < call.ranks && !failed; ++rank) {
      Line theirs = mine;
      if (rank != call.rank) {
        const uint4* slot = ll16_area(call, call.rank, rank, epoch) + line;
        uint4 seen = load_line(slot);
        while (seen.y != epoch || seen.w != epoch) {
          if (!budget.goes_on(rank)) {
            failed = true;
            break;
          }
          seen = load_line(slot);
        }
        theirs.words[0] = seen.x;
        theirs.words[1] = seen.z;
      }
      if (rank == 0) {
        result.widen(theirs.elements);
      } else {
        result.template combine_next<kOp>(theirs.elements);
      }
    }
    if (failed) break;
    Line out;
    result.template store_to<kOp>(out.elements, call.ranks);
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (first + i < call.count) recv[first + i] = out.elements[i];
    }
  }
  end_epoch(call, failed);
}

constexpr std::uint32_t kThreads = 512;

// A thread per line while there are blocks to be had: latency is what counts here.
std::uint32_t blocks_for(const CudaAllReduce& call) {
  const std::uint64_t lines = (call.count * size_of(call.dtype) + 7) / 8;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((lines + kThreads - 1) / kThreads, 1, kDefaultCudaBlocks));
}

}  // namespace

cudaError_t launch_one_shot_ll16(const CudaAllReduce& call, std::uint32_t blocks,
                                 cudaStream_t stream) {
  if (blocks == 0) blocks = blocks_for(call);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(one_shot_ll16<Format, kOp>, call, {blocks, kThreads}, stream);
  });
}

cudaError_t load_one_shot_ll16(DType dtype, ReduceOp op) {
  return with_kernel(
      dtype, op, [&]<typename Format, ReduceOp kOp>() { return load(one_shot_ll16<Format, kOp>); });
}

}  // namespace arcomm::device
