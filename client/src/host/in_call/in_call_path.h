// Small operations of a member on the host, run within the call: the ranks' processes exchange what
// they send in memory of their own (proto/host/in_call.h) and each combines it, with the kernels
// and so the bits of the worker's. Only an operation with nothing before it under way, which its
// caller waits for, and for which all ranks come soon; any other goes to the worker, with nothing
// lost. Thread: any; one operation at a time, in the order of turn(). Ownership: its member's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "client/src/host/collective_call.h"
#include "client/src/host/in_call/in_call_meeting.h"
#include "client/src/host/in_call/in_call_parts.h"
#include "client/src/host/in_call/spin_worth.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/host/in_call.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "transport/device/lost_time.h"

namespace arcomm::client {

struct Member;

// $ARCOMM_IN_CALL_BYTES: what communicators whose rank 0 this process is are to have in the place
// of the daemon's bound, for measurements; 0: nothing is asked for. InvalidArgument for what is no
// number from 1 to 64 Ki.
Result<std::uint64_t> most_in_call_bytes_asked();

class InCallPath {
 public:
  // The descriptor is not kept.
  static Result<std::unique_ptr<InCallPath>> open(const UniqueFd& memory, Rank rank,
                                                  const InCallLayout& layout);
  InCallPath(const InCallPath&) = delete;
  InCallPath& operator=(const InCallPath&) = delete;

  // How it ended: done, with the result there, or late for its turn. None: it is to go to the
  // worker, as if it had not been tried. Time: once it has its turn, 10 ms at most, and half of
  // what the deadline leaves.
  std::optional<Status> run(Member& member, const CollectiveCall& call, DeadlineOnDemand& deadline);

  // Whoever submits an operation of the member holds it: what meets here and what the worker gets
  // have one order. Held by run() throughout. Not held where other threads' calls lasted until the
  // deadline: then the member gives up, whose peers may have begun the operation without it.
  using Turn = std::unique_lock<DeadlineMutex>;
  Turn turn(Deadline deadline) { return Turn(turn_, deadline.when()); }
  static Error late_for_turn() { return other_thread_busy("in a call of this communicator"); }
  // A request of an operation that was submitted under turn(), and has not ended, leaves now. One
  // thread at a time.
  void sent_to_worker();

 private:
  using Meeting = InCallMeeting<>;

  InCallPath(SharedMapping memory, std::uint32_t rank, const InCallLayout& layout);
  InCallControl& control() const { return *reinterpret_cast<InCallControl*>(memory_.data()); }
  InCallRank& own() const { return control().ranks[rank_]; }
  // Of the next operation, wherever it will run.
  std::uint64_t next_number() const {
    return at_worker_.load(std::memory_order_relaxed) + run_here_ + 1;
  }
  // False: not all come, or not in time, or not for this.
  bool wait_for_all(const Member& member, Meeting& meeting, DeadlineOnDemand& deadline);
  Meeting::Seen sleep(Meeting& meeting, std::chrono::nanoseconds most);
  // After what they may sleep for.
  void wake_others();

  SharedMapping memory_;
  const std::uint32_t rank_, ranks_;
  InCallParts parts_;
  DeadlineMutex turn_;
  std::uint64_t run_here_ = 0;               // operations; changes while nothing is at the worker
  std::atomic<std::uint64_t> at_worker_{0};  // requests that were sent there
  SpinWorth spin_worth_;
  LostTime lost_time_;
};

}  // namespace arcomm::client
