// The control page of a rank's scratch, and waiting on it. See launch_cuda.h for who owns it.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/launch_cuda.h"

namespace arcomm::device {

struct Scratch {
  CudaOutcome outcome;
  std::uint32_t abort;      // not 0: end every wait
  std::uint32_t skipped;    // epoch of the last launch that a rank skipped; written by that rank
  std::uint32_t cancelled;  // cancel_number of the last launch that was cancelled
  // Of the next operation, less one. Grows when the last block of a launch leaves.
  alignas(128) std::uint32_t epoch;
  std::uint32_t blocks_done;
  std::uint32_t decided;  // Decision of this launch, if it may be cancelled; 0 between launches
  // Epochs that peers have reached, per block and rank; written by them.
  alignas(128) std::uint32_t arrived[kMaxCudaBlocks][kMaxCudaRanks];
  std::uint32_t finished[kMaxCudaBlocks][kMaxCudaRanks];
  // Tiles of the stream algorithm, behind their epoch in the upper half: see stream.cu.
  alignas(128) std::uint64_t sent[kMaxCudaBlocks][kMaxCudaRanks];
  std::uint64_t freed[kMaxCudaBlocks][kMaxCudaRanks];
};
static_assert(sizeof(Scratch) <= kCudaControlBytes);

// Of the first block of a launch, for all of them.
enum class Decision : std::uint32_t { Run = 1, Skip = 2 };

// Flags are 32-bit epochs. Before they could come round to one that an old flag still shows,
// operations are refused, on every rank at the same one.
constexpr std::uint32_t kLastEpoch = 0xffff'fff0U;

__device__ __forceinline__ Scratch* scratch_of(const CudaAllReduce& call, std::uint32_t rank) {
  return static_cast<Scratch*>(call.scratch[rank]);
}

__device__ __forceinline__ void fail(Scratch* own, CudaOutcomeCode code, std::uint32_t culprit) {
  if (atomicCAS_system(&own->outcome.code, 0U, static_cast<std::uint32_t>(code)) == 0U) {
    own->outcome.culprit = culprit;
  }
  store_release(&own->abort, 1);
}

// One thread's account of its waits in one launch: together they end at the operation's timeout.
class Patience {
 public:
  __device__ __forceinline__ Patience(Scratch* own, std::uint64_t timeout_ns)
      : own_(own), timeout_ns_(timeout_ns) {}

  // Called after a look in vain; false: give up. The clock is read only now and then: it costs as
  // much as a look. It starts with the first wait that is not over at once.
  __device__ __forceinline__ bool goes_on(std::uint32_t waited_for) {
    if ((++looks_ & 127U) != 0) return true;
    if (load_relaxed(&own_->abort) != 0) {
      fail(own_, CudaOutcomeCode::Aborted, waited_for);
      return false;
    }
    if (load_relaxed(&own_->skipped) == own_->epoch + 1) return false;  // it will never come
    const std::uint64_t now = global_nanoseconds();
    if (since_ == 0) since_ = now;
    if (now - since_ < timeout_ns_) return true;
    fail(own_, CudaOutcomeCode::Timeout, waited_for);
    return false;
  }

 private:
  Scratch* own_;
  std::uint64_t timeout_ns_;
  std::uint64_t since_ = 0;
  std::uint32_t looks_ = 0;
};

// Whether this launch was cancelled before its first block came: then no block of it runs, and all
// ranks are told. So a cancelled operation has touched nobody's output: whoever writes there has
// the parts of all ranks. And where no rank skips, all run to the end.
__device__ __forceinline__ bool skips(const CudaAllReduce& call, std::uint32_t epoch) {
  Scratch* own = scratch_of(call, call.rank);
  bool skip = false;
  if (threadIdx.x == 0) {
    const auto mine = static_cast<std::uint32_t>(
        load_relaxed(&own->cancelled) == call.cancel_number ? Decision::Skip : Decision::Run);
    const std::uint32_t first = atomicCAS(&own->decided, 0U, mine);
    skip = (first == 0 ? mine : first) == static_cast<std::uint32_t>(Decision::Skip);
  }
  skip = __syncthreads_or(skip) != 0;
  if (skip && threadIdx.x < call.ranks)
    store_release(&scratch_of(call, threadIdx.x)->skipped, epoch);
  return skip;
}

// The epoch of this launch, the same in all its blocks and on all ranks; 0: the block must not run.
// Called by all threads, which get one answer: an abort may be raised while they look.
__device__ __forceinline__ std::uint32_t begin_epoch(const CudaAllReduce& call) {
  Scratch* own = scratch_of(call, call.rank);
  const std::uint32_t epoch =
      own->epoch + 1;  // stable: written when the launch before this one ended
  const bool used_up = epoch >= kLastEpoch;
  const bool aborted = load_relaxed(&own->abort) != 0;
  if (call.cancel_number != 0 && skips(call, epoch)) return 0;
  if (__syncthreads_or(used_up || aborted) == 0) return epoch;
  if (threadIdx.x == 0) {
    fail(own, used_up ? CudaOutcomeCode::EpochsUsedUp : CudaOutcomeCode::Aborted, 0);
  }
  return 0;
}

// Called by all threads of a block when it has nothing more to do. The last block speaks for all,
// so what each wrote is ordered before what it says.
__device__ __forceinline__ void end_epoch(const CudaAllReduce& call) {
  Scratch* own = scratch_of(call, call.rank);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicInc(&own->blocks_done, gridDim.x - 1) != gridDim.x - 1) return;
  __threadfence();
  const std::uint32_t epoch = own->epoch + 1;
  const std::uint32_t code = load_relaxed(&own->outcome.code);
  const bool skipped = load_relaxed(&own->skipped) == epoch;
  own->epoch = epoch;
  own->decided = 0;
  if (code == 0 && skipped) return;  // it did not happen
  if (code == 0) {
    if (call.done != nullptr) store_release(call.done, call.done_word);
    if (call.host_done != nullptr) store_release(call.host_done, call.done_word);
  } else if (call.host_outcome != nullptr) {
    store_release(reinterpret_cast<std::uint64_t*>(call.host_outcome),
                  std::uint64_t{own->outcome.culprit} << 32 | code);
  }
}

// Block b of every rank meets block b of the others: what each had written before, on any GPU, is
// visible to all behind it. False: the wait failed. Called by all threads.
template <typename Word>
__device__ __forceinline__ bool meet(const CudaAllReduce& call, Word word, std::uint32_t epoch,
                                     Patience& patience) {
  __syncthreads();
  bool failed = false;
  const std::uint32_t peer = threadIdx.x;
  if (peer < call.ranks && peer != call.rank) {
    store_release(word(scratch_of(call, peer), call.rank), epoch);
    const std::uint32_t* theirs = word(scratch_of(call, call.rank), peer);
    while (load_acquire(theirs) != epoch && !failed) failed = !patience.goes_on(peer);
  }
  return __syncthreads_or(failed) == 0;
}

}  // namespace arcomm::device
