// One block's epoch in an in-stream operation: its number, what makes it give up, and the check
// that all ranks do the same. The memory is described in proto/gpu/exchange.h.
//
// Numbers come round after 2^32 operations, and after 2^24 in packets' flags, which count laps,
// too. A stale line could then be taken for a new one, so now and then an epoch wipes a piece of
// the half that is not in use. No peer writes there before it has seen what this rank stores
// afterwards.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"
#include "kernels/lines/ll16.cuh"
#include "proto/gpu/in_stream_call.h"
#include "proto/status.h"

namespace arcomm::device {

// Two epochs of so many wipe, one for each half, a line per thread: with eight ranks everything is
// wiped in some forty thousand epochs, of 2^24. A wipe takes 6 us, so it is rare.
constexpr std::uint32_t kInStreamWipeEvery = 1024;

struct BlockState {  // in shared memory
  std::uint32_t taken;
  bool runs;                    // decided before anything is stored, and the same for all threads
  volatile std::uint32_t over;  // not 0: nothing more is written, the block leaves
};

// Out of line, as everything is that a block seldom does: instructions that it only jumps over have
// to be fetched too, and that was half a microsecond of an operation of 3 us.
inline __device__ __noinline__ void fail_in_stream(const InStreamCall& call, BlockState& state,
                                                   Done why) {
  const auto word = static_cast<unsigned long long>(to_word(why));
  if (atomicCAS(reinterpret_cast<unsigned long long*>(&call.mailbox->failed), 0ull, word) == 0)
    store_relaxed(&call.doorbells->in_stream_failed, word);
  state.over = 1;
}

// What a thread looks at now and then while it waits. Returns the time at which its waits began, or
// 0: give up.
inline __device__ __noinline__ std::uint64_t look_around(const InStreamCall& call,
                                                         BlockState& state, std::uint64_t since,
                                                         std::uint64_t more_ns,
                                                         std::uint32_t waited_for) {
  if (state.over != 0) return 0;
  const std::uint64_t closed = load_relaxed(&call.mailbox->closed);
  if (closed != 0) {
    fail_in_stream(call, state, done_from(closed));
    return 0;
  }
  if (load_relaxed(&call.mailbox->failed) != 0) {
    state.over = 1;
    return 0;
  }
  const std::uint64_t now = global_nanoseconds();
  if (since == 0) return now;
  if (now - since < call.timeout_ns + more_ns) return since;
  fail_in_stream(call, state,
                 {.number = state.taken,
                  .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                  .reason = static_cast<std::uint8_t>(Reason::Timeout),
                  .culprit_rank = static_cast<std::int16_t>(waited_for)});
  return 0;
}

// What ends the waits of a block: the operation's timeout, a communicator that is closed or has
// failed, or another thread of the block that gave up.
struct InStreamWatch {
  const InStreamCall& call;
  BlockState& state;
  std::uint64_t more_ns = 0;

  __device__ __forceinline__ void grow(std::uint64_t by_ns) { more_ns += by_ns; }
  __device__ __forceinline__ bool goes_on(std::uint64_t& since, std::uint32_t waited_for) const {
    since = look_around(call, state, since, more_ns, waited_for);
    return since != 0;
  }
};
using InStreamBudget = WaitBudget<InStreamWatch>;

class BlockEpoch {
 public:
  __device__ __forceinline__ BlockEpoch(const InStreamCall& call, BlockState& state)
      : call_(call), state_(state) {}

  // Called by all threads of the block. Returns when what is before the operation in its stream has
  // ended, so that the threads that move data may read it; meanwhile the watcher takes the number.
  __device__ __forceinline__ void enter() {
    // The number may be taken before that: every block of this kernel has its number when it lets
    // the next launch begin, and what another stream has next waits for this one either way.
    if (threadIdx.x == kInStreamThreads) take();
    grid_dependency_wait();
  }

  // Called by all threads, behind enter() and before everything else here. False: the block must do
  // nothing but leave().
  __device__ __forceinline__ bool begins() {
    __syncthreads();
    number_ = state_.taken;
    const bool runs = state_.runs;
    if (number_ % kInStreamWipeEvery < 2 && runs) wipe();
    return runs;
  }
  __device__ __forceinline__ std::uint32_t flag() const { return flag_of(number_); }
  // For packets, whose places are used several times in an epoch; never 0 either. Precondition:
  // lap < kMostInStreamLaps.
  __device__ __forceinline__ std::uint32_t flag_of_lap(std::uint32_t lap) const {
    return number_ << kInStreamLapBits | (lap + 1);
  }
  // Whether this thread is of the warp that moves no data, but takes the number and compares what
  // the ranks do.
  __device__ __forceinline__ bool is_watcher() const { return threadIdx.x >= kInStreamThreads; }

  // Called by the watcher: tells all ranks what this one does, and waits until each has said the
  // same.
  __device__ __forceinline__ void agree() {
    const std::uint32_t peer = threadIdx.x - kInStreamThreads;
    if (blockIdx.x == 0 && peer == 0) store_relaxed(&call_.doorbells->in_stream_begun, number_);
    if (peer >= call_.ranks || peer == call_.rank) return;
    store_ll16(head(peer, call_.rank), {call_.what, call_.count_and_identity}, flag());
    InStreamBudget budget({call_, state_});
    Ll16Line theirs;
    if (!receive_ll16(theirs, head(call_.rank, peer), peer, flag(), budget)) return;
    const uint2 said = theirs.data();
    if (said.x == call_.what && said.y == call_.count_and_identity) return;
    const bool same = is_same_but_for_identity(said.x, said.y, call_.what,  //
                                               call_.count_and_identity);
    fail_in_stream(
        call_, state_,
        {.number = number_,
         .code = static_cast<std::uint8_t>(ErrorCode::FailedPrecondition),
         .reason = static_cast<std::uint8_t>(same ? Reason::Reordered : Reason::Mismatch),
         .culprit_rank = static_cast<std::int16_t>(peer)});
  }

  // Called by all threads, when what they would write first is ready: whether they may write it.
  __device__ __forceinline__ bool all_agree() { return __syncthreads_or(state_.over != 0) == 0; }

  // Called by any thread, once no thread of the block waits for anybody any more. Called earlier,
  // it would let a grid that waits for this one take SMs from blocks that a peer's blocks wait for.
  __device__ __forceinline__ void trigger_dependents() const {
    if (call_.triggers_late == 0) device::trigger_dependents();
  }

  // Called by all threads, last of all.
  __device__ __forceinline__ void leave() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    trigger_dependents();
    // Relaxed: this block has used what it read from its areas, and what it wrote for others
    // carries flags of its own. A fence would wait for the links.
    store_relaxed(&own().ended, state_.taken);
    if (call_.left != nullptr) atomicAdd(call_.left, 1U);
  }

  // Where rank `from` leaves its lines and packets for rank `at`.
  __device__ __forceinline__ uint4* ll16_lines(std::uint32_t at, std::uint32_t from) const {
    return at_offset(at, in_stream_ll16_offset(call_.ranks, number_, blockIdx.x, from));
  }
  __device__ __forceinline__ uint4* packets(std::uint32_t at, std::uint32_t from) const {
    return at_offset(at, in_stream_ll128_offset(call_.ranks, number_, blockIdx.x, from));
  }

 private:
  __device__ __forceinline__ InStreamBlock& own() const {
    return call_.exchange[call_.rank]->blocks[blockIdx.x];
  }
  __device__ __forceinline__ uint4* at_offset(std::uint32_t at, std::uint64_t offset) const {
    return reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(call_.exchange[at]) + offset);
  }
  __device__ __forceinline__ uint4* head(std::uint32_t at, std::uint32_t from) const {
    return reinterpret_cast<uint4*>(&call_.exchange[at]->heads[number_ & 1U][blockIdx.x][from]);
  }

  // An epoch that must not run is taken too, so that the ranks count alike.
  __device__ __forceinline__ void take() {
    state_.over = 0;
    state_.taken = 0;
    InStreamBudget budget({call_, state_});
    // These loads travel together.
    const std::uint64_t failed = load_relaxed(&call_.mailbox->failed);
    const std::uint64_t closed = load_relaxed(&call_.mailbox->closed);
    std::uint32_t ended = load_relaxed(&own().ended);
    const std::uint32_t number = atomicAdd(&own().taken, 1U) + 1;
    state_.taken = number;
    if (failed != 0) {
      state_.over = 1;
    } else if (closed != 0) {
      fail_in_stream(call_, state_, done_from(closed));
    }
    // A block of another stream may have the epoch before this one.
    while (state_.over == 0 && ended != number - 1 && budget.goes_on(call_.rank))
      ended = load_relaxed(&own().ended);
    state_.runs = state_.over == 0;
  }

  __device__ __noinline__ void wipe() const {
    const std::uint64_t ll16 =
        blockIdx.x < kMaxInStreamLl16Blocks ? call_.ranks * kInStreamLl16Bytes / 16 : 0;
    const std::uint64_t lines =
        ll16 + call_.ranks * in_stream_packets(call_.ranks) * kInStreamPacketBytes / 16;
    const std::uint64_t line =
        (std::uint64_t{number_ / kInStreamWipeEvery} * kInStreamBlockThreads + threadIdx.x) % lines;
    // The areas of one block and half lie one after the other, sender by sender.
    const std::uint64_t offset =
        line < ll16
            ? in_stream_ll16_offset(call_.ranks, number_ + 1, blockIdx.x, 0) + line * 16
            : in_stream_ll128_offset(call_.ranks, number_ + 1, blockIdx.x, 0) + (line - ll16) * 16;
    store_line(at_offset(call_.rank, offset), {0, 0, 0, 0});
    __threadfence_system();
    __syncthreads();
  }

  const InStreamCall& call_;
  BlockState& state_;
  std::uint32_t number_;
};

}  // namespace arcomm::device
