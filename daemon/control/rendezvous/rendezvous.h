// Where the ranks of a communicator meet: CreateCommunicator calls with one unique id are collected
// until every rank has called, then the worker forms the communicator and all are answered.
// Remembers each id's epoch, so that a communicator that broke is formed again as the next one.
//
// Thread: the control loop. Each call is answered exactly once, possibly from inside join(). Rules:
// (1) ranks of one communicator have one uid: whoever guesses an id of another uid is refused;
// (2) one rank, one call: a second one is AlreadyExists, while it waits and while its communicator
// is ready; (3) calls that disagree about the number of ranks, or name one GPU twice, fail all of
// them, naming both;
// (4) a session that ends fails the calls that wait with it, naming its rank.
//
// What is complete here is formed here. Of a communicator that spans nodes, the calls of this node
// wait here; where it meets is decided elsewhere (peers/meetings/node_meetings.h), which watches
// the calls that wait and has them formed, committed or abandoned as a Part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/rendezvous/local_meeting.h"
#include "daemon/control/rendezvous/remembered_epochs.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

class Rendezvous {
 public:
  using Clock = LocalMeeting::Clock;
  using Joined = LocalMeeting::Joined;
  using Answer = LocalMeeting::Answer;
  using Call = LocalMeeting::Call;
  using Waiting = LocalMeeting::Waiting;
  using Elsewhere = LocalMeeting::Elsewhere;
  using Part = LocalMeeting::Part;
  using Live = LocalMeeting::Live;
  using Forming = LocalMeeting::Forming;
  using Formed = std::function<void(Result<std::vector<MemberId>>)>;
  // Forms on worker `worker`; calls back on the control loop.
  using Form = std::function<void(std::size_t worker, CommunicatorSpec spec, Formed formed)>;

  // Gives a formed member back to its worker.
  using Leave = std::function<void(std::size_t worker, SessionId session, MemberId member)>;

  explicit Rendezvous(Form form, Leave leave = {})
      : form_(std::move(form)), leave_(std::move(leave)) {}

  // Told once all is in place, before any answer; may ask anything here, and change nothing.
  struct Watcher {
    // Other calls wait under this id than before, or none.
    std::function<void(const UniqueIdBytes&)> changed;
    // All calls under this id have failed with this; changed() is not told besides.
    std::function<void(const UniqueIdBytes&, const Error&)> failed;
  };
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }

  void join(Call call);
  // The caller no longer listens; its rank is free again.
  void cancel(std::uint64_t serial);
  // Answers calls whose deadline has passed, naming the ranks that did not call.
  void sweep(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;  // when sweep() will have something to do
  void fail_all(const Error& why);

  // The communicator of this epoch is no longer usable: the next call starts the next epoch. why:
  // what callers hear who are not answered yet, since other nodes have still to form it.
  void dissolve(const UniqueIdBytes& unique_id, std::uint64_t epoch, const std::string& why = {});
  void session_gone(SessionId session, pid_t pid, Reason reason);

  // The calls of this id that wait for others, if any do.
  std::optional<Waiting> waiting(const UniqueIdBytes& unique_id) const;
  // What is known about ranks elsewhere, for the words of a timeout.
  void note(const UniqueIdBytes& unique_id, Elsewhere elsewhere);

  // Forms the part of the calls that wait, who are not answered before commit(). `formed` hears how
  // it went; where it went wrong the calls have failed. Precondition: waiting() has some.
  void build_part(const UniqueIdBytes& unique_id, Part part,
                  std::function<void(const Status&)> formed);
  // All nodes have formed the communicator of this number (CommunicatorSpec::communicator): the
  // calls are answered. FailedPrecondition where it is not, or no longer, formed here.
  Status commit(const UniqueIdBytes& unique_id, std::uint64_t communicator);
  // Some node has not: what is formed goes back. The calls fail, or wait on where there is no why.
  // Nothing happens where it is not here, or already ready.
  void abandon(const UniqueIdBytes& unique_id, std::uint64_t communicator,
               const std::optional<Error>& why);
  // Fails the calls that wait.
  void refuse(const UniqueIdBytes& unique_id, const Error& why);

  // Set when the communicator is ready, is that uid's, and so a call for `rank` would be refused;
  // where that rank is on another node, one of this node stands for it.
  std::optional<Live> live(const UniqueIdBytes& unique_id, uid_t uid, Rank rank) const;

  std::vector<Forming> forming() const;
  std::size_t ready() const { return ready_; }  // communicators in use
  const RememberedEpochs& remembered() const { return remembered_; }

 private:
  using State = LocalMeeting::State;
  using Meetings = std::map<UniqueIdBytes, LocalMeeting>;

  void build(Meetings::iterator at, Part part, std::function<void(const Status&)> formed);
  void built(const UniqueIdBytes& unique_id, Result<std::vector<MemberId>> members);
  void make_ready(Meetings::iterator at);
  void give_back(const LocalMeeting& meeting);
  void collect_again(Meetings::iterator at);              // what waits on after an attempt
  void give_up(Meetings::iterator at, const Error& why);  // Building or Formed: its calls fail
  void sweep_part(const UniqueIdBytes& unique_id, Clock::time_point now);
  void tell_changed(const UniqueIdBytes& unique_id) const {
    if (watcher_.changed) watcher_.changed(unique_id);
  }
  void fail(Meetings::iterator at, Error why);  // all its calls
  void session_gone(Meetings::iterator at, SessionId session, pid_t pid, Reason reason);
  // After the last call left: nothing stays but the epoch of an id that was built. The iterator
  // does not survive it, nor does any after an answer.
  void settle(Meetings::iterator at);

  Form form_;
  Leave leave_;
  Watcher watcher_;
  Meetings meetings_;
  RememberedEpochs remembered_;  // of ids that have no meeting
  std::size_t ready_ = 0;
};

}  // namespace arcomm
