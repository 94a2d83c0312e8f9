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

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/remembered_epochs.h"
#include "daemon/exec/worker/device_worker.h"
#include "proto/launch_table.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;
  struct Joined {
    MemberId member;
    std::uint64_t epoch = 0;
    std::vector<std::string> rank_devices;
    std::uint64_t segment_limit_bytes = 0;  // one for all ranks: the last caller's
  };
  using Answer = std::function<void(Result<Joined>)>;
  struct Call {
    UniqueIdBytes unique_id{};
    std::uint64_t serial = 0;               // of the RPC; 0 cannot be cancelled
    std::uint64_t segment_limit_bytes = 0;  // the setting's value now
    Rank rank = 0;
    int ranks = 0;
    SessionId session;
    PeerCredentials peer;
    std::size_t worker = 0;
    std::string device;
    std::vector<std::string> visible_gpus;
    std::uint32_t in_stream_abi = kInStreamAbi;
    InStreamHindrance in_stream_hindrance = InStreamHindrance::None;
    std::uint32_t launch_table_version = kLaunchTableVersion;
    bool on_gpu = false;  // `device` is a GPU, which serves one rank of a communicator
    Clock::time_point called_at, deadline;
    Answer answer;
  };
  using Formed = std::function<void(Result<std::vector<MemberId>>)>;
  // Forms on worker `worker`; calls back on the control loop.
  using Form = std::function<void(std::size_t worker, CommunicatorSpec seed, Formed formed)>;

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
  struct Waiting {
    uid_t uid = 0;
    int ranks = 0;
    std::size_t worker = 0;
    std::uint64_t epoch = 0;  // of the last build; 0: none that is remembered
    std::uint64_t segment_limit_bytes = 0;
    bool on_gpu = false;
    struct Caller {
      Rank rank = 0;
      pid_t pid = 0;
      std::string device;
      Clock::time_point deadline;
    };
    std::vector<Caller> callers;  // by rank
  };
  std::optional<Waiting> waiting(const UniqueIdBytes& unique_id) const;
  // What is known about ranks elsewhere, for the words of a timeout.
  struct Elsewhere {
    std::string missing;  // instead of what is known here; "": nothing is
    Rank culprit = kNoRank;
    std::string remark;  // "node-c is unreachable: connection refused"
  };
  void note(const UniqueIdBytes& unique_id, Elsewhere elsewhere);

  // This node's part of a communicator that spans several.
  struct Part {
    CommunicatorSpec spec;                  // without what the calls say: ranks, uid, deadline
    std::vector<std::string> rank_devices;  // of all nodes
    std::uint64_t segment_limit_bytes = 0;
    Clock::time_point deadline = Clock::time_point::max();  // of callers elsewhere
    // Before it is formed: the links. Calls back on the control loop, once.
    std::function<void(std::function<void(const Status&)>)> prepare = {};
  };
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
  struct Live {
    Rank rank = 0;
    SessionId session;
    MemberId member;
    std::size_t worker = 0;
    std::uint64_t epoch = 0;
  };
  std::optional<Live> live(const UniqueIdBytes& unique_id, uid_t uid, Rank rank) const;

  struct Forming {
    UniqueIdBytes unique_id{};
    std::uint64_t epoch = 0;
    int ranks = 0;
    struct Caller {
      Rank rank = 0;
      SessionId session;
      pid_t pid = 0;
      Clock::time_point since;
    };
    std::vector<Caller> called;
    std::string diagnosis;
  };
  std::vector<Forming> forming() const;
  std::size_t ready() const { return ready_; }  // communicators in use
  const RememberedEpochs& remembered() const { return remembered_; }

 private:
  // Formed: by this node, of a communicator that spans several, and not committed yet.
  enum class State : std::uint8_t { Collecting, Building, Formed, Ready };
  struct Meeting {
    uid_t uid = 0;
    int ranks = 0;
    std::uint64_t epoch = 0;  // of the last build
    State state = State::Collecting;
    std::size_t worker = 0;
    std::uint64_t segment_limit_bytes = 0;
    std::map<Rank, Call> calls;  // Collecting; Building and Formed, unless they gave up
    Elsewhere elsewhere;         // Collecting
    Part part;                   // from Building on; without nodes where all ranks are here
    std::function<void(const Status&)> formed;  // Building a part
    std::optional<Error> lost;                  // Building: why it will not stand
    bool is_preparing = false;                  // Building: the worker has not been asked yet
    bool waits_on = false;                      // Building, lost: the calls are to wait on
    std::vector<Rank> unheard;                  // Building, Formed: whose callers no longer listen
    std::vector<Live> members;  // from Building on, by rank; with their ids from Formed on
    bool spans_nodes() const { return state != State::Collecting && !part.spec.nodes.empty(); }
    const Live* find(Rank rank) const;
    std::string missing() const;  // Collecting
  };
  using Meetings = std::map<UniqueIdBytes, Meeting>;

  Part part_of_all(Meetings::iterator at) const;  // of a meeting whose ranks are all here
  void build(Meetings::iterator at, Part part, std::function<void(const Status&)> formed);
  void built(const UniqueIdBytes& unique_id, Result<std::vector<MemberId>> members);
  void make_ready(Meetings::iterator at);
  void give_back(const Meeting& meeting);
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
