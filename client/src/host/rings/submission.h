// A session's operations on the host, and its questions: requests go in, completions come out, and
// whoever waits does both for everyone (waiting.h). This is the lock over the parts: what has not
// left yet (RequestQueue), what is in flight (SessionRings), what is to be copied (StagedCopying),
// how an operation ends (OperationEnds) and how the session does (SessionLoss).
//
// Requests of one member leave in the order of the calls. What does not fit into the ring waits
// here and leaves as completions arrive. Thread: any; one mutex, which StagedCopying lets go of
// while it moves bytes. Time: submit() never blocks on the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "client/src/control/fd_channel.h"
#include "client/src/host/member.h"
#include "client/src/host/memory/staged_copying.h"
#include "client/src/host/memory/staging.h"
#include "client/src/host/operation.h"
#include "client/src/host/rings/operation_ends.h"
#include "client/src/host/rings/request_queue.h"
#include "client/src/host/rings/ring_questions.h"
#include "client/src/host/rings/session_rings.h"
#include "client/src/host/rings/sleepers.h"
#include "client/src/session/due_aborts.h"
#include "client/src/session/session_loss.h"
#include "proto/ring/segment.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class Submission {
 public:
  using Enough = StagedCopying::Enough;
  struct Parts {
    ring::Segment segment;
    UniqueFd doorbell;
    std::uint32_t max_in_flight = 0;
    FdChannel&
        descriptors;  // outlives this, as do all that follow; asked whether the daemon hung up
    StagingPool& staging;
    DueAborts& aborts;
  };
  explicit Submission(Parts parts);
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  void add(Member& member);
  // After this no operation of the member is touched: what was open has failed with `why`.
  void remove(Member& member, const Error& why);

  // Takes the operation over; a refusal leaves it the caller's. Waits for calls of the member that
  // other threads have begun, until the operation's deadline.
  Status submit(Operation& operation);
  // Gives up on an operation whose ticket the caller has spent. Its member takes no further ones.
  void abandon(Operation& operation);
  // A call of this member ended without its request: its ranks no longer agree on what comes next.
  void give_up(Member& member);
  // Asks the worker what is no operation; features() says whether it takes that. False: the ring
  // has no room, or the session is over.
  bool ask(Question& question);
  // Plans whose caller had stopped waiting: to be removed by a call.
  std::vector<PlanId> take_late_plans();
  // To be called for each that was asked, before it goes. Whether it is answered.
  bool end(Question& question);
  std::uint64_t features() const { return rings_.features(); }
  // Why the member takes nothing more; Ok while it does. Cheap while it does.
  Error failure_of(const Member& member) const;

  // Works for everyone: takes what is there, and copies until the thread has `enough`. Returns at
  // once where another thread is at it.
  void work(const Enough& enough);
  // The same, copying for at most about `copying`.
  void progress(std::chrono::microseconds copying);
  // For `slice` at most, unless the thread has finished() or there is work.
  void sleep(std::chrono::nanoseconds slice, const std::function<bool()>& finished);
  // The daemon says that cores are wanted by others.
  bool is_oversubscribed() const {
    return rings_.control().oversubscribed.load(std::memory_order_relaxed) != 0;
  }

  // The same of calls that meet without the daemon's worker.
  bool is_oversubscribed_by_clients() const {
    return rings_.control().oversubscribed_by_clients.load(std::memory_order_relaxed) != 0;
  }

  // The daemon says that other processes use its core.
  bool core_is_shared() const {
    return rings_.control().core_is_shared.load(std::memory_order_relaxed) != 0;
  }

  // Whether this session is of no use any more. Cheap.
  bool lost() const { return loss_.lost(); }
  // Not lost, nor does the daemon say that it takes nothing new. Cheap.
  bool is_open() const {
    const auto state = static_cast<ring::SessionState>(
        rings_.control().session_state.load(std::memory_order_relaxed));
    return !loss_.lost() && state == ring::SessionState::Open;
  }
  // Why; Ok while it is of use.
  Error loss() const;
  // Looks at the socket too: one system call.
  void check();
  // Ends everything: for detaching.
  void close(const Error& why);

 private:
  using Lock = StagedCopying::Lock;

  // All of these run under mutex_.
  void pump(Member& member) {
    if (!requests_.pump(member)) lose_requests();
  }
  void lose_requests();
  void reap();
  void complete(const ring::Completion& completion);
  void look_at_state();

  FdChannel& descriptors_;
  DueAborts& aborts_;
  mutable std::mutex mutex_;
  SessionRings rings_;
  RingQuestions questions_;
  StagedCopying copying_;
  OperationEnds ends_;
  RequestQueue requests_;
  SessionLoss loss_;
  Sleepers sleepers_;
};

}  // namespace arcomm::client
