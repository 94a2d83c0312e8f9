// Who is on the way out, and is told when it is over: sessions whose operations still run, ranks
// that have left or aborted, and the whole worker while it drains. Thread: the worker's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/exec/worker/worker_state.h"

namespace arcomm {

class Departures {
 public:
  using Done = DeviceWorker::Done<void>;

  explicit Departures(WorkerState& state) : state_(state) {}

  // The session's ranks go; their peers hear `reason`.
  void drop_members(Session& session, Reason reason, const std::string& why);
  // done: its last operation has ended, and all that it held is let go of.
  void add(std::unique_ptr<Session> session, Done done);
  // done: what all ranks had called when the member went has ended. At once where that is nothing.
  void add(SessionId session, MemberId member,
           std::optional<CommunicatorTable::Committed> waits_for, Done done);
  // Is that member on its way out? Then `done` hears of it, too.
  bool join(SessionId session, MemberId member, const Done& done);
  // done: no operation is in flight, or the deadline has passed and what was left has failed.
  void add_drain(std::uint64_t deadline_ns, Done done);

  // Answers those whose time has come. Returns whether there were any.
  bool settle();
  void sweep_deadlines(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns() const;
  // The end: whoever still waits is told that it has not ended.
  void give_up();
  // Plans and buffers; nothing of the session is in flight.
  void release(Session& session);

 private:
  struct Leaving {
    std::unique_ptr<Session> session;
    Done done;
  };
  struct Parting {
    SessionId session;
    MemberId member;
    CommunicatorTable::Committed waits_for;
    Done done;
  };
  struct Draining {
    std::uint64_t deadline_ns = 0;
    Done done;
  };

  WorkerState& state_;
  std::vector<Leaving> leaving_;
  std::vector<Parting> parting_;
  std::vector<Draining> draining_;
};

}  // namespace arcomm
