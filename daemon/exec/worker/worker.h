// The verbs of a device worker's loop: requests in, operations matched, started, ended, answered.
// The thread and its sleep are in device_worker.cc; what control asks for is in control_requests.h.
// Thread: the worker's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/exec/worker/departures.h"
#include "daemon/exec/worker/quarantine.h"
#include "daemon/exec/worker/session_plans.h"
#include "daemon/exec/worker/turns/turn_shares.h"
#include "daemon/exec/worker/worker_state.h"

namespace arcomm {

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(DeviceWorker::Parts parts);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // ---- the loop's verbs; each says whether it found work ----
  bool poll_sessions();  // of each session its share, in turn
  bool settle();         // answers what has ended
  bool execute();        // starts what may run, and one tile of each large operation
  bool reap();           // what the device has finished; sessions that can go
  // Tells other nodes, and hears what they say; where no link is open that costs nothing.
  bool poll_nodes(std::uint64_t now_ns) {
    return !state_.nodes.is_alone() && state_.nodes.poll(now_ns);
  }
  void sweep_deadlines(std::uint64_t now_ns);
  // Sees what was called before now, also where the device brings it late: before anything that
  // ends a plan, a member or a session.
  void catch_up();

  // ---- sleeping ----
  enum class Rest : std::uint8_t {
    Awake,  // there is work after all
    Sleep,  // every session will ring
    Nap,    // a session has requests but no room for completions: nobody will ring, look again soon
  };
  // The last look at what comes from other nodes, which ring from here on.
  bool look_at_nodes(std::uint64_t now_ns);
  Rest arm();  // afterwards disarm(), whatever it said
  void disarm();
  std::uint64_t next_deadline_ns() const;
  bool computing() const { return !state_.backend->idle() && !state_.backend->awaits_nodes(); }
  // How long a sleep may last at most, where the device cannot ring. 0: stay awake.
  std::uint64_t rest_ns(std::uint64_t now_ns) const { return state_.backend->rest_ns(now_ns); }
  bool lost() const { return state_.backend->lost(); }  // its device: a new process is needed
  bool oversubscribed() const { return state_.sessions.oversubscribed(); }
  bool flooded() const {
    return shares_.flooded();
  }  // this turn left somebody's requests for the next

  // Fails what is open, and when nothing runs any more lets all sessions go; after some seconds on
  // GPUs in any case. False: call again, in another turn. At its end, again: the device lets go of
  // what it had to keep, and nothing else: what did not end refers to communicators that are gone.
  bool shut_down();

  WorkerState& state() { return state_; }
  const WorkerState& state() const { return state_; }
  Departures& departures() { return departures_; }
  SessionPlans& plans() { return plans_; }

 private:
  explicit Worker(DeviceWorker::Parts parts);

  bool poll(Session& session);
  bool poll_device();
  void take(const DoorbellCall& call, std::uint64_t now_ns);
  void admit(Session& session, const ring::WorkRequest& slot, std::uint64_t now_ns);
  void answer_plan(Session& session, const ring::WorkRequest& slot);
  void accept(Session& session, Operation& operation);
  void start(Communicator& communicator);
  bool work();
  void apply(std::vector<Outcome>& outcomes);
  void impose_quarantine();  // at the end of a verb
  void wake_clients();
  void on_revoked(Communicator& communicator);
  void let_all_go();

  WorkerState state_;
  Departures departures_{state_};
  Quarantine quarantine_{state_, departures_};
  SessionPlans plans_{state_, [this] { catch_up(); }};
  std::size_t first_polled_ = 0;
  std::vector<Session*> to_wake_;  // those that settle() has told something
  std::vector<Outcome> outcomes_;
  TurnShares shares_{state_.sessions};
  std::uint64_t ending_since_ns_ = 0;  // 0: it serves
  bool is_shut_down_ = false;
};

}  // namespace arcomm
