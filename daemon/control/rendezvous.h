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

  void join(Call call);
  // The caller no longer listens; its rank is free again.
  void cancel(std::uint64_t serial);
  // Answers calls whose deadline has passed, naming the ranks that did not call.
  void sweep(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;  // when sweep() will have something to do
  void fail_all(const Error& why);

  // The communicator of this epoch is no longer usable: the next call starts the next epoch.
  void dissolve(const UniqueIdBytes& unique_id, std::uint64_t epoch);
  void session_gone(SessionId session, pid_t pid, Reason reason);

  // Set when the communicator is ready, is that uid's, and so a call for `rank` would be refused.
  struct Live {
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
  enum class State : std::uint8_t { Collecting, Building, Ready };
  struct Meeting {
    uid_t uid = 0;
    int ranks = 0;
    std::uint64_t epoch = 0;  // of the last build
    State state = State::Collecting;
    std::size_t worker = 0;
    std::uint64_t segment_limit_bytes = 0;       // Building
    std::map<Rank, Call> calls;                  // Collecting, Building
    std::optional<std::pair<Rank, Error>> lost;  // Building: a rank that ended meanwhile
    std::vector<Live> members;                   // Ready, by rank
  };
  using Meetings = std::map<UniqueIdBytes, Meeting>;

  void build(Meetings::iterator at);
  void built(const UniqueIdBytes& unique_id, Result<std::vector<MemberId>> members);
  void fail(Meetings::iterator at, Error why);  // all its calls
  void session_gone(Meetings::iterator at, SessionId session, pid_t pid, Reason reason);
  // After the last call left: nothing stays but the epoch of an id that was built. The iterator
  // does not survive it, nor does any after an answer.
  void settle(Meetings::iterator at);

  Form form_;
  Leave leave_;
  Meetings meetings_;
  RememberedEpochs remembered_;  // of ids that have no meeting
  std::size_t ready_ = 0;
};

}  // namespace arcomm
