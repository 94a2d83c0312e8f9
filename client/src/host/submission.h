// A session's rings, from the client's side: requests go in, completions come out, and whoever
// waits does both for everyone.
//
// Requests of one member leave in the order of the calls. A member has at most its share of the
// session's requests in flight, so that one thread may drive all ranks of a communicator: the first
// rank cannot use up the room that its peers need. What does not fit waits here and leaves as
// completions arrive.
// Thread: any; one mutex, which StagedCopying lets go of while it moves bytes.
// Time: submit() never blocks on the daemon; wait_for() ends at its deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/src/control/fd_channel.h"
#include "client/src/host/operation.h"
#include "client/src/host/staged_copying.h"
#include "client/src/host/staging.h"
#include "client/src/session/deadline.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/segment.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class GpuMember;
class Session;

// One rank of one communicator, in one epoch, as this process drives it.
struct Member {
  std::shared_ptr<Session> session;
  MemberId id;
  std::uint64_t epoch = 0;
  Rank rank = 0;
  std::uint64_t segment_limit_bytes = 0;  // where operations are cut; the same on every rank
  std::shared_ptr<GpuMember> gpu;         // in a session on GPUs, which uses none of what follows

  // Under the mutex of the session's Submission:
  std::uint64_t next_seq = 0;
  std::uint32_t in_flight = 0;
  std::atomic<std::uint64_t> active{0};  // operations submitted and not done
  std::deque<Operation*> queue;        // those with requests still to leave, in the callers' order
  std::atomic<std::size_t> queued{0};  // its length, for who waits for room
  std::optional<Error> failure;        // why nothing more may be submitted
  std::atomic<bool> failed{false};     // whether `failure` is set
};

class Submission {
 public:
  struct Parts {
    ring::Segment segment;
    UniqueFd doorbell;
    std::uint32_t max_in_flight = 0;
    FdChannel& descriptors;  // outlives this; asked whether the daemon hung up
    StagingPool& staging;    // outlives this
    // Called by waiting threads, without a lock, while take_aborts() has something: brief.
    std::function<void()> tell_aborts;
  };
  explicit Submission(Parts parts);
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  void add(Member& member);
  // After this no operation of the member is touched: what was open has failed with `why`.
  void remove(Member& member, const Error& why);

  // Takes the operation over; a refusal leaves it the caller's.
  Status submit(Operation& operation);
  // True once `operation` is done; false at the deadline.
  bool wait_for(const Operation& operation, Deadline deadline);
  // True once no operation of the member is open, or none that still has to leave in full.
  bool wait_until_idle(const Member& member, Deadline deadline);
  bool wait_for_room(const Member& member, Deadline deadline);
  // Gives up on an operation whose ticket the caller has spent. Its member takes no further ones.
  void abandon(Operation& operation);
  // Reaps what is there, and copies for at most about `copying`.
  void progress(std::chrono::microseconds copying);
  // A call of this member ended without its request: its ranks no longer agree on what comes next.
  void give_up(Member& member);
  // Why the member takes nothing more; Ok while it does. Cheap while it does.
  Error failure_of(const Member& member) const;
  // Members that gave up by themselves, for the caller to abort at the daemon: their peers wait.
  std::vector<MemberId> take_aborts();
  // For those whose abort did not get through.
  void return_aborts(const std::vector<MemberId>& members);

  // Why this session is of no use any more, if so. Cheap.
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  Error loss() const;
  // Looks at the socket too: one system call.
  void check();
  // Ends everything: for detaching.
  void close(const Error& why);

 private:
  struct InFlight {
    Operation* operation = nullptr;
    Member* member = nullptr;
    std::uint64_t segment = 0;
    std::uint32_t generation = 0;
  };
  using Lock = StagedCopying::Lock;
  using Enough = StagedCopying::Enough;

  // All of these run under mutex_.
  void pump(Member& member);
  bool push(Operation& operation, Member& member);
  void reap();
  void complete(const ring::Completion& completion);
  void set_failure(Member& member, const Error& why);
  void revoke(Member& member, const Error& why);
  void fail(Operation& operation, const Error& why, std::uint64_t seq);
  void settle(Operation& operation);
  void lose(const Error& why);
  void look_at_state();
  std::uint32_t share() const;

  // These take the mutexes themselves.
  void work(const Enough& enough);
  template <typename Finished>
  bool wait_while_working(std::uint64_t bytes, Deadline deadline, Finished finished);
  template <typename Finished>
  void sleep(std::chrono::nanoseconds slice, Finished finished);
  void wake_others();

  ring::Segment segment_;
  UniqueFd doorbell_fd_;
  ring::EventDoorbell requests_doorbell_;
  ring::FutexDoorbell completions_doorbell_;
  const std::uint32_t max_in_flight_;
  FdChannel& descriptors_;
  StagingPool& staging_;
  const std::function<void()> tell_aborts_;

  mutable std::mutex mutex_;
  ring::Producer<ring::WorkRequest> requests_;
  ring::Consumer<ring::Completion> completions_;
  std::vector<InFlight> in_flight_;  // the ring's ticket names one: index and generation
  std::vector<std::uint32_t> free_;
  std::vector<Member*> members_;
  StagedCopying copying_;
  bool settled_ = false;  // since the last look: someone may have to be woken
  std::vector<MemberId> aborts_due_;
  std::atomic<bool> any_abort_due_{false};
  std::optional<Error> loss_;
  std::atomic<bool> lost_{false};

  std::mutex sleep_mutex_;
  std::condition_variable sleepers_;
  std::atomic<int> num_sleepers_{0};
  bool futex_taken_ = false;  // one thread sleeps on the ring, the others on sleepers_
};

}  // namespace arcomm::client
