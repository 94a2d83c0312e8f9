// A communicator as its worker sees it: all its ranks (the world), those of this node (the seats),
// what these have called, and whether it still works. Thread: the worker's. Owned by
// CommunicatorTable.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/arrival_board.h"
#include "daemon/comm/elsewhere.h"
#include "daemon/comm/unique_id.h"
#include "daemon/comm/world.h"
#include "daemon/plan/failure.h"
#include "daemon/plan/network_policy.h"
#include "proto/coding.h"
#include "proto/types.h"

namespace arcomm {

// A rank of this node.
struct Seat {
  Rank rank = 0;            // global
  std::uint32_t index = 0;  // its own place among the seats: the local rank
  SessionId session;
  pid_t pid = 0;
  uid_t uid = 0;
  MemberId member;             // invalid once the rank has left
  std::uint64_t next_seq = 0;  // of the rank's next operation
};

// What the worker of another kind of device keeps with a communicator; it goes with it.
class CommunicatorExtension {
 public:
  virtual ~CommunicatorExtension() = default;
};

inline constexpr std::uint64_t kNoSeq = std::numeric_limits<std::uint64_t>::max();

struct Communicator {
  Communicator(const UniqueIdBytes& id, std::uint64_t build, World all, std::vector<Seat> taken,
               ArrivalPool& pool, FailedShare* share = nullptr)
      : unique_id(id),
        epoch(build),
        world(std::move(all)),
        seats(std::move(taken)),
        board(pool, static_cast<int>(seats.size()), uids_of(seats), share) {}

  static std::vector<uid_t> uids_of(const std::vector<Seat>& seats) {
    std::vector<uid_t> uids;
    for (const Seat& seat : seats) uids.push_back(seat.uid);
    return uids;
  }
  // Of a rank of this node.
  Seat& seat(Rank rank) { return seats[world.place(rank).local]; }
  const Seat& seat(Rank rank) const { return seats[world.place(rank).local]; }
  // Has any rank of the world called `seq`, as far as it is known here?
  bool has_called(Rank rank, std::uint64_t seq) const;
  int ranks() const { return static_cast<int>(world.size()); }  // on all nodes
  bool spans_nodes() const { return !world.is_one_node(); }
  bool ready() const { return revoked.ok(); }
  bool running() const {
    const Arrival* head = board.head();
    return head != nullptr && head->state == Arrival::State::Running;
  }

  std::uint64_t serial = 0;  // of this table: never given twice
  Coding default_coding;     // for people: the clients apply it
  NetworkPolicy policy;      // likewise; where it spans nodes
  const UniqueIdBytes unique_id;
  const std::uint64_t epoch;
  const World world;
  std::vector<Seat> seats;  // by local rank
  ArrivalBoard board;
  Failure revoked;  // ok() while ready: why it ended
  Failure later;    // what operations hear that come after that
  // The operation that made it end: others were only caught up in it. kNoSeq: all are alike.
  std::uint64_t revoked_at = kNoSeq;
  std::uint64_t cut_off = 0;  // arrivals that were open when it ended
  // A rank that leaves in good order ends the sequence where it stood; what all had called before
  // still runs.
  std::uint64_t ends_at = std::numeric_limits<std::uint64_t>::max();
  Failure ended;                      // what operations from there on hear
  std::uint64_t operations_done = 0;  // of all ranks together, as one
  std::uint64_t operations_failed = 0;
  std::uint64_t bytes_reduced = 0;
  bool queued = false;                               // on the table's ready list
  bool listed = false;                               // in OpenCommunicators
  Communicator* next_ready = nullptr;                // there
  std::unique_ptr<CommunicatorExtension> extension;  // may look at what is above as it goes
  std::unique_ptr<Elsewhere> elsewhere;              // the same; null on one node
};

// A rank of a communicator, as its session names it.
struct Member {
  Communicator* communicator = nullptr;
  Rank rank = kNoRank;     // global
  std::uint32_t seat = 0;  // among the communicator's
};

// "ranks 0,1,3"; ranks that `select` names.
template <typename Select>
std::string list_ranks(const Communicator& communicator, Select select) {
  std::string text;
  int count = 0;
  for (const Seat& seat : communicator.seats) {
    if (!select(seat)) continue;
    text += (count++ == 0 ? "" : ",") + std::to_string(seat.rank);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

// One sentence for people: who keeps the others waiting; "" where nobody does.
// "rank 2 (pid 812, next seq 7) has not called; ranks 0,1,3 wait at seq 7 since 1200 ms"
std::string diagnose(const Communicator& communicator, std::uint64_t now_ns);
// What the ranks that wait at `arrival` are told when their deadline has passed; the culprit is the
// first missing.
Failure describe_timeout(const Communicator& communicator, const Arrival& arrival,
                         std::uint64_t now_ns);

// What operations from `first` on hear, where this rank has left in good order.
Failure describe_leave(const Communicator& communicator, Rank who_left, std::uint64_t first);
// Operations fail that other ranks have not called, and those who still may must hear of each:
// where there are more of them than is kept, what the communicator ends with. seat: whose call may
// have made one fail.
std::optional<Failure> describe_too_many_failed(const Communicator& communicator,
                                                std::uint32_t seat);

}  // namespace arcomm
