// The control page of a rank's scratch, and waiting on it. See cuda_scratch.h for who owns it.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"
#include "kernels/launch/cuda_scratch.h"
#include "kernels/launch/gated_launch.h"
#include "kernels/launch/launch_cuda.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm::device {

// What a gate compares its number with. Read and written as one word.
struct alignas(8) Progress {
  std::uint32_t number;  // of the last operation that ended well, as its done word says
  std::uint32_t gated;   // launches behind gates that have ended
};

struct Scratch {
  CudaOutcome outcome;
  std::uint32_t abort;      // not 0: end every wait
  std::uint32_t cancelled;  // number of the last gate that is not to open any more
  // Epochs that a rank skips, each in the place of its remainder; written by that rank's gate.
  // There are several places, because a rank may still look for its epoch when others skip a later
  // one.
  std::uint32_t skipped[kMostGatesAhead];
  // Of the last operation that has ended. Grows when the last block of a launch leaves.
  alignas(128) std::uint32_t epoch;
  std::uint32_t blocks_done;  // of the launch that runs; and how many of them did not end well
  std::uint32_t gates[2];     // how many have begun, by parity
  Progress progress;
  // The epochs whose gates peers have opened, each in the place of its remainder; written by them.
  // A gate tells of it while its operation runs already, and what needs no such word may have ended
  // by then: in one place for all, the word of the next gate could be overwritten by the last
  // one's.
  std::uint32_t opened[kMostGatesAhead][kMaxGpuRanks];
  // Epochs that peers have reached, per block and rank; written by them.
  alignas(128) std::uint32_t arrived[kMaxCudaBlocks][kMaxGpuRanks];
  std::uint32_t finished[kMaxCudaBlocks][kMaxGpuRanks];
  // Tiles of stream.cu, in the lower half; their epoch is in the upper one.
  alignas(128) std::uint64_t sent[kMaxCudaBlocks][kMaxGpuRanks];
  std::uint64_t freed[kMaxCudaBlocks][kMaxGpuRanks];
};
static_assert(sizeof(Scratch) <= kCudaControlBytes);

// Flags are 32-bit epochs. An epoch that came round could be one that an old flag still shows, so
// the owner has the scratch start over before that (start_over()). One that does not is refused
// operations, on every rank at the same one.
constexpr std::uint32_t kLastEpoch = 0xffff'fff0U;

__device__ __forceinline__ Scratch* scratch_of(const CudaAllReduce& call, std::uint32_t rank) {
  return static_cast<Scratch*>(call.scratch[rank]);
}

__device__ __forceinline__ Progress progress_of(const Scratch* own) {
  const std::uint64_t word = load_relaxed(reinterpret_cast<const std::uint64_t*>(&own->progress));
  return {.number = static_cast<std::uint32_t>(word),
          .gated = static_cast<std::uint32_t>(word >> 32)};
}

__device__ __forceinline__ std::uint32_t* skipped_at(Scratch* at, std::uint32_t epoch) {
  return &at->skipped[epoch % kMostGatesAhead];
}

__device__ __forceinline__ std::uint32_t* opened_at(Scratch* at, std::uint32_t epoch,
                                                    std::uint32_t from) {
  return &at->opened[epoch % kMostGatesAhead][from];
}

__device__ __forceinline__ void fail(Scratch* own, CudaOutcomeCode code, std::uint32_t culprit) {
  if (atomicCAS_system(&own->outcome.code, 0U, static_cast<std::uint32_t>(code)) == 0U) {
    own->outcome.culprit = culprit;
  }
  store_release(&own->abort, 1);
}

// What ends the waits of a launch: its timeout, an abort, or a peer that skips its epoch.
struct LaunchWatch {
  Scratch* own;
  std::uint64_t timeout_ns;

  __device__ __forceinline__ void grow(std::uint64_t more_ns) { timeout_ns += more_ns; }
  __device__ __forceinline__ bool goes_on(std::uint64_t& since, std::uint32_t waited_for) const {
    if (load_relaxed(&own->abort) != 0) {
      fail(own, CudaOutcomeCode::Aborted, waited_for);
      return false;
    }
    const std::uint32_t epoch = load_relaxed(&own->epoch) + 1;
    if (load_relaxed(skipped_at(own, epoch)) == epoch) return false;  // a peer will never come
    const std::uint64_t now = global_nanoseconds();
    if (since == 0) since = now;
    if (now - since < timeout_ns) return true;
    fail(own, CudaOutcomeCode::Timeout, waited_for);
    return false;
  }
};
using LaunchBudget = WaitBudget<LaunchWatch>;

__device__ __forceinline__ LaunchBudget budget_of(const CudaAllReduce& call) {
  return LaunchBudget({scratch_of(call, call.rank), call.timeout_ns});
}

// The epoch of this launch, the same in all its blocks and on all ranks; 0: the block must not run.
// Called by all threads, which get one answer: an abort may be raised while they look.
//
// A gated launch may begin before the SM's L1 has been emptied of what the launch before it left
// there, so everything here is read past L1. An acquire empties L1 for all that follows, on today's
// GPUs; the programming model promises that only to a thread that reads what another has released.
// A rank whose gate was shut for good runs no block. The ranks that find this out have not touched
// anybody's output, because a rank writes there only when it has the parts of all ranks.
__device__ __forceinline__ std::uint32_t begin_epoch(const CudaAllReduce& call) {
  Scratch* own = scratch_of(call, call.rank);
  // Stable: the launch before this one wrote it when it ended.
  const std::uint32_t epoch = load_relaxed(&own->epoch) + 1;
  const bool used_up = epoch >= kLastEpoch;
  const bool aborted = load_relaxed(&own->abort) != 0;
  // All places are read while the epoch, which says which of them counts, is on its way.
  const bool looks = call.gated && threadIdx.x < kMostGatesAhead;
  const bool skips = looks && load_acquire(&own->skipped[threadIdx.x]) == epoch;
  if (__syncthreads_or(used_up || aborted || skips) == 0) return epoch;
  // A launch that is skipped reports nothing, even when it is aborted: its owner sees that it has
  // ended.
  const bool skipped = __syncthreads_or(skips) != 0;
  if (threadIdx.x == 0 && !skipped)
    fail(own, used_up ? CudaOutcomeCode::EpochsUsedUp : CudaOutcomeCode::Aborted, 0);
  return 0;
}

// Says how this rank's part of this epoch has ended. The last thing that the launch does, called by
// one thread behind a fence that orders all that was written before it. progress: as it was before.
__device__ __forceinline__ void report(const CudaAllReduce& call, std::uint32_t epoch,
                                       Progress progress, bool skipped, std::uint32_t code) {
  Scratch* own = scratch_of(call, call.rank);
  const std::uint64_t done_word =
      call.gated ? to_word(Done{.number = progress.number + 1}) : call.done_word;
  const bool well = !skipped && code == 0;
  // First, because the client's stream waits for it. The stream is on this GPU, so the caller's
  // fence is enough. The client's next call may come before the rest has arrived: a gate looks at
  // the progress first.
  if (well && call.done != nullptr) store_relaxed(call.done, done_word);
  if (call.gated) ++progress.gated;
  if (well && done_word != 0) progress.number = done_from(done_word).number;
  own->epoch = epoch;
  own->blocks_done = 0;
  fence_on_gpu();
  store_relaxed(reinterpret_cast<std::uint64_t*>(&own->progress),
                std::uint64_t{progress.gated} << 32 | progress.number);
  if (well && call.host_done != nullptr) store_release(call.host_done, done_word);
  if (code != 0 && call.host_outcome != nullptr) {
    store_release(reinterpret_cast<std::uint64_t*>(call.host_outcome),
                  std::uint64_t{own->outcome.culprit} << 32 | code);
  }
}

// In blocks_done, beside the count of blocks.
constexpr std::uint32_t kBlocksMask = 0xffffU, kUnwellBlock = 0x1'0000U;

// Called by all threads of a block that has nothing more to do. failed: this thread gave up, or the
// block did not run. The last block speaks for all, so what each block wrote is ordered before what
// it says. The count of blocks also tells it whether all went well: another look would take as long
// as half a hop to another GPU.
__device__ __forceinline__ void end_epoch(const CudaAllReduce& call, bool failed) {
  Scratch* own = scratch_of(call, call.rank);
  // Read before the rest, past L1: see begin_epoch(). Both are written when a launch ends.
  const std::uint32_t epoch = load_relaxed(&own->epoch) + 1;
  const Progress progress = threadIdx.x == 0 ? progress_of(own) : Progress{};
  const bool unwell = __syncthreads_or(failed) != 0;
  if (threadIdx.x != 0) return;
  fence_on_gpu();
  const std::uint32_t before = atomicAdd(&own->blocks_done, unwell ? kUnwellBlock + 1 : 1U);
  if ((before & kBlocksMask) != gridDim.x - 1) return;
  fence_on_gpu();
  if (!unwell && before < kUnwellBlock) return report(call, epoch, progress, false, 0);
  const std::uint32_t skipped = load_relaxed(skipped_at(own, epoch));
  const std::uint32_t code = load_relaxed(&own->outcome.code);
  report(call, epoch, progress, skipped == epoch, code);
}

// Block b of every rank meets block b of the others. What each had written before, on any GPU, is
// visible to all of them behind it. False: the wait failed. Called by all threads.
template <typename Word>
__device__ __forceinline__ bool meet(const CudaAllReduce& call, Word word, std::uint32_t epoch,
                                     LaunchBudget& budget) {
  __syncthreads();
  bool failed = false;
  const std::uint32_t peer = threadIdx.x;
  if (peer < call.ranks && peer != call.rank) {
    store_release(word(scratch_of(call, peer), call.rank), epoch);
    const std::uint32_t* theirs = word(scratch_of(call, call.rank), peer);
    while (load_acquire(theirs) != epoch && !failed) failed = !budget.goes_on(peer);
  }
  return __syncthreads_or(failed) == 0;
}

// As meet(), last of all: behind it, block b of every rank has read its inputs and written its
// outputs.
__device__ __forceinline__ bool meet_at_end(const CudaAllReduce& call, std::uint32_t epoch,
                                            LaunchBudget& budget) {
  const auto finished = [](Scratch* at, std::uint32_t from) {
    return &at->finished[blockIdx.x][from];
  };
  return meet(call, finished, epoch, budget);
}

// As meet(), first of all: behind it, block b may use the buffers of all ranks. Behind gates the
// gates have met for all blocks.
__device__ __forceinline__ bool meet_at_start(const CudaAllReduce& call, std::uint32_t epoch,
                                              LaunchBudget& budget) {
  if (!call.gated) {
    const auto arrived = [](Scratch* at, std::uint32_t from) {
      return &at->arrived[blockIdx.x][from];
    };
    return meet(call, arrived, epoch, budget);
  }
  bool failed = false;
  const std::uint32_t peer = threadIdx.x;
  if (peer < call.ranks && peer != call.rank) {
    const std::uint32_t* theirs = opened_at(scratch_of(call, call.rank), epoch, peer);
    while (load_acquire(theirs) != epoch && !failed) failed = !budget.goes_on(peer);
  }
  return __syncthreads_or(failed) == 0;
}

}  // namespace arcomm::device
