// The resident kernel: one small grid per GPU that takes small operations from the doorbells of
// proto/gpu/device_mailbox.h, runs them (as one_shot_ll16 does, by launch.h's rules, bit for bit)
// and writes their `done` words, with no CPU in between. The grid looks at its members in turn;
// each one's operation is a state (pushed, collecting), and pushing never waits. So operations of
// different communicators that start in another order on another GPU cannot block each other.
//
// A launch of it may have to wait until other work leaves it room on the GPU, for as long as that
// lasts. Then it has not started: it serves nobody yet, and pause() takes the launch back.
//
// Thread: one owner; nothing here blocks except pause(), and what writes to the GPU (40 ms where
// that is held up, microseconds else). While the grid runs, the owner must not allocate or free
// memory, map or unmap, or load modules: pause() first.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "kernels/launch/launch_cuda.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint32_t kResidentMembers = 32;  // of one GPU at a time

// Device pointers, valid on the grid's GPU.
struct ResidentMember {
  DeviceMailbox* mailbox = nullptr;
  // Of all ranks: resident_scratch_bytes() each, zeroed before the communicator's first operation
  // and mapped on all the ranks' GPUs.
  void* scratch[kMaxGpuRanks] = {};
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  // 2 .. kMaxGpuRanks
  // Of the last operation before, as the mailbox's doorbell has it, too: 0, as that is new, but
  // where a test has numbers come round.
  std::uint32_t number = 0;
};

struct ResidentPlan {
  const void* send = nullptr;
  void* recv = nullptr;
  std::uint64_t count = 0;       // elements; at most kMaxResidentBytes of them
  std::uint64_t timeout_ns = 0;  // from the doorbell being seen
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  Collective collective = Collective::AllReduce;
  std::uint32_t signature = 0;  // set_plan() fills it in
};
// What all ranks must agree on, beside the identity: no two operations that differ have the same.
constexpr std::uint32_t resident_signature(const ResidentPlan& plan) {
  return static_cast<std::uint32_t>(plan.count) << 13 |
         static_cast<std::uint32_t>(plan.collective) << 10 |
         static_cast<std::uint32_t>(plan.codec) << 7 | static_cast<std::uint32_t>(plan.dtype) << 3 |
         static_cast<std::uint32_t>(plan.op);
}
static_assert(kMaxResidentBytes < std::uint64_t{1} << 19 && kDTypes <= 1 << 4 &&
              kReduceOps <= 1 << 3 && kCodecs <= 1 << 3 && kCollectives <= 1 << 3);
// Whether the grid runs plan `index` of the member at `slot`; the error says why not.
inline Status can_be_resident(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) {
  if (index >= kMaxDevicePlans || slot >= kResidentMembers ||
      plan.count > kMaxResidentBytes / size_of(plan.dtype) ||
      !has_bit(kResidentCodecs, static_cast<unsigned>(plan.codec)) ||
      !has_bit(kResidentCollectives, static_cast<unsigned>(plan.collective))) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "plan ", index, " of slot ", slot,
                 " with ", plan.count, " elements, codec ", text_of(plan.codec), ", for ",
                 text_of(plan.collective), " is none for the resident kernel");
  }
  return {};
}

// What the owner reads of a member, from host memory that the grid writes.
struct ResidentStatus {
  std::uint32_t done = 0;  // the last operation that ended well, as Doorbell::number
  // Code 0: nothing has failed. After a failure the member serves no more, and `closed` of its
  // mailbox is the same word. A member is ended by its owner (abort_member()); by a rank that is
  // missing after the plan's timeout (Timeout), has a plan for another operation (Mismatch) or an
  // operation of another identity (Reordered), which is then the culprit; by a plan that it may not
  // start (UnknownHandle) or a number that is not the next one (Quarantined), and then it is the
  // culprit itself.
  Done failed;
};

std::uint64_t resident_scratch_bytes();

class ResidentGrid {
 public:
  // On the GPU `ordinal`, not running yet. Slow: loads the kernel and allocates.
  static Result<std::unique_ptr<ResidentGrid>> create(int ordinal);
  virtual ~ResidentGrid() = default;  // pauses; memory that may still be in use is kept

  // ---- while it runs or not ----
  // Runs it again where it has left. The members' state is as pause() left it. Unavailable while
  // the GPU has not come to a launch that was taken back: try again.
  virtual Status resume() = 0;
  // Makes it leave and waits until it has: within microseconds, as nothing in it waits, and whether
  // it has started or not. Operations stay as far as they are; what a member has begun here, its
  // peers can end elsewhere. DeadlineExceeded: it is about to leave and has not yet, which is all
  // that another pause() waits for. One that takes seconds means that the GPU is stuck.
  virtual Status pause(std::chrono::nanoseconds timeout) = 0;
  virtual bool running() const = 0;
  // Nothing of it is on the GPU. Where it was paused before it had started, its launch is, until
  // the GPU comes to it.
  virtual bool is_idle() const = 0;
  // It runs, and all of it has begun. No call to the driver.
  virtual bool started() const = 0;
  // A free slot, ResourceExhausted where there is none. Serves from the next look on.
  virtual Result<std::uint32_t> add_member(const ResidentMember& member) = 0;
  // Sets plan `index` (below kMaxDevicePlans) for starts from now on; only the member at `slot` may
  // start it. The plan that was there must not be in use.
  virtual Status set_plan(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) = 0;
  // Pauses a grid that runs, for some 20 us.
  virtual Status clear_plan(std::uint32_t index) = 0;
  // The member's operation ends with `why`, and so does every later one. Seen in microseconds.
  virtual Status abort_member(std::uint32_t slot, Done why) = 0;
  virtual ResidentStatus status(std::uint32_t slot) const = 0;

  // ---- paused only ----
  // Whether the grid has begun an operation of the member on the plan's buffers that has not ended,
  // whatever the client says. Only then does it use them when it runs again after clear_plan(), and
  // goes on with that operation as it was set.
  virtual Result<bool> has_begun(std::uint32_t slot, const ResidentPlan& plan) const = 0;
  // Frees the slot. Plans that were set for it are nobody's from now on, even when another member
  // gets the slot.
  virtual Status remove_member(std::uint32_t slot) = 0;
};

}  // namespace arcomm
