// What meets on this node under one unique id: the ranks' calls while they wait, what is formed of
// them, and the members that came of it. Rendezvous has them all, and answers.
// Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/exec/worker/device_worker.h"
#include "daemon/plan/network_policy.h"
#include "proto/coding.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

struct LocalMeeting {
  using Clock = std::chrono::steady_clock;
  struct Joined {
    MemberId member;
    std::uint64_t epoch = 0;
    std::vector<std::string> rank_devices;
    std::uint64_t segment_limit_bytes = 0;  // one for all ranks: the last caller's
    bool is_here = false;                   // with all its ranks
    std::uint32_t nodes = 1;                // of several: where else, and how they work together
    NetworkPolicy policy = {};
    bool same_tables = false;  // all their libraries read this daemon's launch tables
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
    std::uint64_t most_in_call_bytes = 0;  // rank 0's counts; 0: the daemon's choice
    bool on_gpu = false;  // `device` is a GPU, which serves one rank of a communicator
    Coding default_coding;
    std::uint32_t most_sms = 0;  // CommunicatorSpec's
    MemoryToken token;           // RankSpec's
    Clock::time_point called_at, deadline;
    Answer answer;
  };
  // What is known about ranks elsewhere, for the words of a timeout.
  struct Elsewhere {
    std::string missing;  // instead of what is known here; "": nothing is
    Rank culprit = kNoRank;
    std::string remark;  // "node-c is unreachable: connection refused"
  };
  // This node's part of a communicator that spans several.
  struct Part {
    CommunicatorSpec spec;                  // without what the calls say: ranks, uid, deadline
    std::vector<std::string> rank_devices;  // of all nodes
    std::uint64_t segment_limit_bytes = 0;
    Clock::time_point deadline = Clock::time_point::max();  // of callers elsewhere
    // Before it is formed: the links. Calls back on the control loop, once.
    std::function<void(std::function<void(const Status&)>)> prepare = {};
  };
  // A rank of this node.
  struct Live {
    Rank rank = 0;
    SessionId session;
    MemberId member;
    std::size_t worker = 0;
    std::uint64_t epoch = 0;
  };
  // The calls that wait for others.
  struct Waiting {
    uid_t uid = 0;
    int ranks = 0;
    std::size_t worker = 0;
    std::uint64_t epoch = 0;  // of the last build; 0: none that is remembered
    std::uint64_t segment_limit_bytes = 0;
    bool on_gpu = false;
    bool same_tables = false;  // as in Joined
    Coding default_coding;
    struct Caller {
      Rank rank = 0;
      pid_t pid = 0;
      std::string device;
      Clock::time_point deadline;
    };
    std::vector<Caller> callers;  // by rank
  };
  // The same for people, until it is ready.
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
  // Formed: by this node, of a communicator that spans several, and not committed yet.
  enum class State : std::uint8_t { Collecting, Building, Formed, Ready };

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
  bool is_at_the_worker() const { return state == State::Building && !is_preparing; }
  bool has(SessionId session) const;  // among the callers or the members
  const Live* find(Rank rank) const;
  bool same_tables() const;     // Joined's, of those whose calls are here
  std::string missing() const;  // Collecting
  Waiting waiting() const;      // Collecting; somebody has called
  Forming forming() const;      // somebody has called; without the unique id
  Part part_of_all() const;     // Collecting; all ranks are here; without the unique id

  // Why a call cannot be one of those that wait, whatever it says of the communicator.
  std::optional<Error> refuse(const Call& call) const;
  // Collecting: takes out the calls whose deadline has passed, with what they are to hear.
  std::vector<std::pair<Answer, Error>> take_late(Clock::time_point now);
  // Collecting: from here on it is Building. What the worker is to form.
  CommunicatorSpec begin(Part wanted, std::function<void(const Status&)> when_formed);
};

}  // namespace arcomm
