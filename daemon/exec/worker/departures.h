// Who is on the way out, and is told when it is over: sessions whose operations still run, ranks
// that have left or aborted, and the whole worker while it drains. What one user held may be much,
// a thousand communicators with sixteen thousand operations: it goes a piece at each settle(), and
// other callers wait for one piece only. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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

  static constexpr std::size_t kMembersAtOnce = 8;   // whose operations end, too
  static constexpr std::size_t kHandlesAtOnce = 64;  // plans and buffers

  // The session's ranks go, the first of them now; their peers hear `reason`. The session stays
  // until it has ended here: add() it then.
  void drop_members(Session& session, Reason reason, const std::string& why);
  // done: its ranks have gone, its last operation has ended, and all that it held is let go of.
  void add(std::unique_ptr<Session> session, Done done);
  // done: what all ranks had called when the member went has ended. At once where that is nothing.
  void add(SessionId session, MemberId member,
           std::optional<CommunicatorTable::Committed> waits_for, Done done);
  // Is that member on its way out? Then `done` hears of it, too.
  bool join(SessionId session, MemberId member, const Done& done);
  // done: no operation is in flight, or the deadline has passed and what was left has failed.
  void add_drain(std::uint64_t deadline_ns, Done done);

  // The next piece, and answers to those whose time has come. Returns whether it did anything: then
  // there may be more to do at once.
  bool settle();
  void sweep_deadlines(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns() const;
  // The end: whoever still waits is told that it has not ended.
  void give_up();
  // All plans and buffers; nothing of the session is in flight.
  void release(std::unique_ptr<Session> session);

 private:
  struct Dropping {
    Session* session = nullptr;  // it outlives this
    std::vector<MemberId> members;
    Reason reason = Reason::None;
    std::string why;
  };
  struct Leaving {
    std::unique_ptr<Session> session;
    Done done;
    bool unbound = false;  // no GPU knows its plans any more
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

  // Each returns whether there was something.
  bool drop_some();
  bool release_some(Leaving& leaving, std::size_t most);
  bool settle_leaving();
  bool is_dropping(const Session& session) const;

  WorkerState& state_;
  std::deque<Dropping> dropping_;
  std::vector<Leaving> leaving_;
  std::vector<Parting> parting_;
  std::vector<Draining> draining_;
};

}  // namespace arcomm
