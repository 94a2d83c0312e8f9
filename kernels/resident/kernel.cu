// The resident kernel's loop: look at the doorbells, push what is new, collect what has arrived,
// leave when told. Blocks do not wait for each other: block b of one rank waits only for block b of
// the others.
#include "kernels/device/launching.cuh"
#include "kernels/resident/operation.cuh"

namespace arcomm::device {
namespace {

// After so many looks in vain the loop sleeps between looks and leaves memory and SMs to others. A
// doorbell then waits up to 100 ns longer, of the 4.6 us that 1 KB takes between two H200.
constexpr std::uint32_t kHotLooks = 100;
constexpr std::uint32_t kCalmSleepNs = 100;

struct Looked {
  std::uint32_t begun, pushed, over;  // one bit per slot
  std::uint32_t quit;
  std::uint64_t doorbells[kResidentMembers];
};

__device__ __forceinline__ std::uint64_t word_of(std::uint32_t number, ErrorCode code,
                                                 Reason reason, std::uint32_t culprit) {
  return to_word(Done{.number = number,
                      .code = static_cast<std::uint8_t>(code),
                      .reason = static_cast<std::uint8_t>(reason),
                      .culprit_rank = static_cast<std::int16_t>(culprit)});
}

class ResidentBlock {
 public:
  __device__ __forceinline__ ResidentBlock(ResidentTable* table, std::uint32_t run,
                                           MemberEntry* members, Pending* pending, Looked* looked)
      : table_(table), run_(run), members_(members), pending_(pending), looked_(looked) {}

  __device__ void run() {
    for (std::uint32_t in_vain = 0;; ++in_vain) {
      look();
      if (looked_->quit != 0) return;
      for (std::uint32_t over = looked_->over; over != 0; over &= over - 1)
        end(static_cast<std::uint32_t>(__ffs(static_cast<int>(over))) - 1);
      for (std::uint32_t begun = looked_->begun; begun != 0; begun &= begun - 1)
        begin(static_cast<std::uint32_t>(__ffs(static_cast<int>(begun))) - 1);
      const std::uint32_t open = (looked_->begun | looked_->pushed) & ~looked_->over;
      for (std::uint32_t left = open; left != 0; left &= left - 1) {
        const auto slot = static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1;
        if (pending_[slot].progress == Progress::Pushed) collect(slot);  // the same for all threads
      }
      if (open != 0) in_vain = 0;
      if (in_vain > kHotLooks && threadIdx.x == 0) __nanosleep(kCalmSleepNs);
      __syncthreads();
    }
  }

 private:
  // One warp looks, one member per lane.
  __device__ __forceinline__ void look() {
    if (threadIdx.x < kResidentMembers) {
      const std::uint32_t slot = threadIdx.x;
      const DeviceMailbox* mailbox = members_[slot].member.mailbox;
      const Progress progress = pending_[slot].progress;
      bool begun = false, over = false;
      const bool quit = slot == 0 && is_at(load_relaxed(&table_->quit), run_);
      if (mailbox != nullptr && progress != Progress::Over) {
        over = load_relaxed(reinterpret_cast<const std::uint64_t*>(&table_->ended[slot])) != 0;
        const std::uint64_t doorbell = load_acquire(&mailbox->paths[0].doorbell);
        // The first block takes part in every operation. Another block may come late to one that
        // has ended without it. If its plan is another one by then, it may even wait in it; it goes
        // on.
        begun = !over && doorbell_from(doorbell).number != pending_[slot].number &&
                (progress == Progress::Idle || blockIdx.x != 0);
        looked_->doorbells[slot] = doorbell;
      }
      const unsigned all_begun = __ballot_sync(0xffff'ffffU, begun);
      const unsigned all_pushed = __ballot_sync(0xffff'ffffU, progress == Progress::Pushed);
      const unsigned all_over = __ballot_sync(0xffff'ffffU, over);
      if (slot == 0) {
        looked_->begun = all_begun;
        looked_->pushed = all_pushed;
        looked_->over = all_over;
        looked_->quit = quit ? 1 : 0;
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ void begin(std::uint32_t slot) {
    Pending& pending = pending_[slot];
    const Doorbell doorbell = doorbell_from(looked_->doorbells[slot]);
    const MemberEntry& entry = members_[slot];
    const bool in_order = doorbell.number == pending.number + 1;
    if (doorbell.plan != pending.plan) {  // the same for all threads
      __shared__ std::uint64_t owner;
      if (threadIdx.x == 0) owner = load_acquire(&table_->plans[doorbell.plan].owner);
      __syncthreads();
      // One vector per thread, past the L1: the owner may have written since.
      constexpr std::uint32_t kVectors = sizeof(PlanEntry) / sizeof(uint4);
      if (owner != entry.owner) {
        if (threadIdx.x == 0) pending.entry.owner = 0;
      } else if (threadIdx.x < kVectors) {
        reinterpret_cast<uint4*>(&pending.entry)[threadIdx.x] =
            __ldcg(reinterpret_cast<const uint4*>(&table_->plans[doorbell.plan]) + threadIdx.x);
      }
    }
    __syncthreads();
    const bool known = pending.entry.owner == entry.owner;
    const std::uint64_t bytes = pending.entry.plan.count * size_of(pending.entry.plan.dtype);
    const auto lines = static_cast<std::uint32_t>((bytes + 7) / 8);
    const std::uint32_t wanted = (lines + kResidentThreads - 1) / kResidentThreads;
    const std::uint32_t blocks =
        wanted < 1 ? 1 : (wanted > kResidentBlocks ? kResidentBlocks : wanted);
    const bool takes_part = known && blockIdx.x < blocks;
    if (threadIdx.x == 0) {
      pending.plan = known ? doorbell.plan : kNoPlan;
      pending.number = doorbell.number;
      pending.identity = doorbell.identity;
      pending.lines = lines;
      pending.blocks = blocks;
      pending.next = 0;
      pending.agreed = false;
      pending.dissenter = pending.out_of_order = -1;
      pending.since_ns = 0;
      pending.progress = takes_part ? Progress::Pushed : Progress::Idle;
    }
    __syncthreads();
    if (blockIdx.x == 0 && (!known || !in_order)) {
      fail(slot, ErrorCode::Aborted, known ? Reason::Quarantined : Reason::UnknownHandle,
           entry.member.rank);
      end(slot);
      return;
    }
    if (takes_part) ResidentOperation(entry.member, pending).push();
  }

  __device__ void collect(std::uint32_t slot) {
    Pending& pending = pending_[slot];
    const MemberEntry& entry = members_[slot];
    std::uint32_t culprit = entry.member.rank;
    const Collected collected = ResidentOperation(entry.member, pending).collect(culprit);
    __syncthreads();
    if (threadIdx.x == 0) settle(slot, collected, culprit);
    __syncthreads();
  }

  // By the block's first thread.
  __device__ __forceinline__ void settle(std::uint32_t slot, Collected collected,
                                         std::uint32_t culprit) {
    Pending& pending = pending_[slot];
    switch (collected) {
      case Collected::Waiting:
        if (pending.since_ns == 0) pending.since_ns = global_nanoseconds();
        if (global_nanoseconds() - pending.since_ns > pending.entry.plan.timeout_ns) {
          fail(slot, ErrorCode::DeadlineExceeded, Reason::Timeout, culprit);
          pending.progress = Progress::Over;
        }
        break;
      case Collected::Mismatched:
      case Collected::Reordered:
        fail(slot, ErrorCode::FailedPrecondition,
             collected == Collected::Reordered ? Reason::Reordered : Reason::Mismatch, culprit);
        pending.progress = Progress::Over;
        break;
      case Collected::Done:
        pending.progress = Progress::Idle;
        complete(slot);
        break;
    }
  }

  // By the block's first thread, behind a barrier: all that the block wrote is ordered before.
  __device__ __forceinline__ void complete(std::uint32_t slot) {
    const Pending& pending = pending_[slot];
    const MemberEntry& entry = members_[slot];
    // The reader of the results runs on this GPU: they need only be in its L2.
    fence_on_gpu();
    if (pending.blocks > 1) {
      std::uint32_t* blocks_done = &table_->blocks_done[slot];
      if (atomicInc(blocks_done, pending.blocks - 1) != pending.blocks - 1) return;
      fence_on_gpu();
    }
    store_relaxed(&entry.member.mailbox->paths[0].done, to_word(Done{.number = pending.number}));
    store_relaxed(entry.host_done, std::uint64_t{pending.number});
  }

  // Called by all threads of the block or by its first one, which alone does it.
  __device__ __forceinline__ void fail(std::uint32_t slot, ErrorCode code, Reason reason,
                                       std::uint32_t culprit) {
    if (threadIdx.x != 0) return;
    atomicCAS(&table_->ended[slot], 0ULL, word_of(pending_[slot].number, code, reason, culprit));
    __threadfence();
    announce(slot);
  }
  __device__ __forceinline__ void announce(std::uint32_t slot) {
    const MemberEntry& entry = members_[slot];
    const std::uint64_t why =
        load_acquire(reinterpret_cast<const std::uint64_t*>(&table_->ended[slot]));
    store_release(&entry.member.mailbox->closed, why);
    store_release(entry.host_failed, why);
  }

  // Another block, or the owner, has ended the member.
  __device__ __forceinline__ void end(std::uint32_t slot) {
    __syncthreads();
    if (threadIdx.x == 0) {
      pending_[slot].progress = Progress::Over;
      if (blockIdx.x == 0) announce(slot);
    }
    __syncthreads();
  }

  ResidentTable* table_;
  const std::uint32_t run_;
  MemberEntry* members_;
  Pending* pending_;
  Looked* looked_;
};

template <typename T>
__device__ __forceinline__ void copy_words(T* to, const T* from, std::uint32_t count) {
  static_assert(sizeof(T) % sizeof(std::uint64_t) == 0);
  auto* into = reinterpret_cast<std::uint64_t*>(to);
  const auto* out_of = reinterpret_cast<const std::uint64_t*>(from);
  for (std::uint32_t i = threadIdx.x; i < count * sizeof(T) / sizeof(std::uint64_t);
       i += blockDim.x) {
    into[i] = out_of[i];
  }
}

// By all threads of the block: whether the run goes on. Its launch may have waited for long, and
// what it would touch be gone.
__device__ __forceinline__ bool begins(const ResidentTable* table, BlockWords& words,
                                       std::uint32_t run) {
  __shared__ bool stays;
  if (threadIdx.x == 0) {
    store_relaxed(&words.begun, run);
    __threadfence_system();  // of two who store a word and then look at the other's, one sees it
    stays = !is_at(load_relaxed(&table->quit), run);
  }
  __syncthreads();
  return stays;
}

// By all threads of the block: all that they have written is seen before it.
__device__ __forceinline__ void leave(BlockWords& words, std::uint32_t run) {
  __syncthreads();
  if (threadIdx.x == 0) store_release(&words.left, run);
}

// Half of an SM's registers at most: others work there too.
__global__ void __launch_bounds__(kResidentThreads, 2)
    resident(ResidentTable* table, BlockWords* words, std::uint32_t run) {
  __shared__ alignas(16) unsigned char member_bytes[kResidentMembers * sizeof(MemberEntry)];
  __shared__ alignas(16) unsigned char pending_bytes[kResidentMembers * sizeof(Pending)];
  __shared__ Looked looked;
  auto* members = reinterpret_cast<MemberEntry*>(member_bytes);
  auto* pending = reinterpret_cast<Pending*>(pending_bytes);
  if (!begins(table, words[blockIdx.x], run)) return leave(words[blockIdx.x], run);
  copy_words(members, table->members, kResidentMembers);
  copy_words(pending, table->pending[blockIdx.x], kResidentMembers);
  __syncthreads();
  ResidentBlock(table, run, members, pending, &looked).run();
  __syncthreads();
  copy_words(table->pending[blockIdx.x], pending, kResidentMembers);
  leave(words[blockIdx.x], run);
}

}  // namespace

cudaError_t launch_resident(ResidentTable* table, BlockWords* words, std::uint32_t run,
                            cudaStream_t stream) {
  resident<<<kResidentBlocks, kResidentThreads, 0, stream>>>(table, words, run);
  return cudaGetLastError();
}

cudaError_t load_resident() {
  return load(resident);
}

}  // namespace arcomm::device
