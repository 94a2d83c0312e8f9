// All communicators of one worker: operations arrive here, and what can run or has ended comes out.
// Thread: the worker's. Never blocks. Operations that end are put on finished() with their outcome
// set; the worker answers them. A communicator stays until all its ranks have left and nothing of
// it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/comm/communicator.h"
#include "daemon/comm/open_communicators.h"
#include "daemon/comm/ready_queue.h"
#include "daemon/memory/id_table.h"
#include "daemon/plan/operation.h"

namespace arcomm {

class CommunicatorTable {
 public:
  // Called when a communicator leaves the ready state, after its waiting operations went to
  // finished(). A running head is left to the listener to stop; its `failure` says why.
  using RevokedListener = std::function<void(Communicator&)>;

  explicit CommunicatorTable(RevokedListener listener) : revoked_(std::move(listener)) {}

  // The seats of world.seated(), all of them and in that order; their places and member ids are
  // filled in.
  std::vector<MemberId> form(const UniqueIdBytes& id, std::uint64_t epoch, World world,
                             std::vector<Seat> seats);
  // On one node: seats complete and in rank order.
  std::vector<MemberId> form(const UniqueIdBytes& id, std::uint64_t epoch,
                             std::vector<Seat> seats) {
    World world = World::of_one_node(seats.size());
    return form(id, epoch, std::move(world), std::move(seats));
  }
  Member* find(MemberId member) const { return members_.find(member); }

  // The rank's seq is the next expected one. Ends at once where the communicator is revoked or has
  // ended.
  void arrive(Operation& operation);
  // What a communicator that spans nodes has to tell them, in order. What ends it is told by the
  // listener. The communicator is there until free_deserted().
  struct Notice {
    enum class Kind : std::uint8_t {
      Called,   // a rank has called `seq`, and waits for others of this node
      Matched,  // all seats have called `seq`: are the others agreed?
      Refused,  // `seq` has ended here, with `failure`, before it could run
      Left,     // nothing runs from `seq` on
    };
    Kind kind = Kind::Matched;
    Communicator* communicator = nullptr;
    std::uint64_t seq = 0;
    Failure failure = {};
  };
  std::vector<Notice>& notices() { return notices_; }

  // All nodes have asked for what this one's seats have asked for at `seq`. On one node that is so
  // as soon as they have.
  void agree(Communicator& communicator, std::uint64_t seq, std::uint64_t now_ns = 0);
  // Another node says until when its ranks wait: the arrival ends here at the earliest of all that
  // was said and its own ranks' deadlines. Nothing where nobody has called `seq` here.
  void limit(Communicator& communicator, std::uint64_t seq, std::uint64_t deadline_ns);
  // Another node says that ranks of its wait, whoever has called here: they may cross others.
  void note_waiting_elsewhere(Communicator& communicator);
  // Said by another node, or found in what others have said: as the Notices of these names, which
  // are not given for them.
  void refuse_all(Communicator& communicator, std::uint64_t seq, const Failure& told,
                  std::uint64_t now_ns);
  // Where this node's ranks had not called all before `seq`, its end comes earlier. The end.
  std::uint64_t end_by(Communicator& communicator, std::uint64_t seq, Rank who_left);
  // The communicator was revoked elsewhere, by what became of the operation at `seq`; kNoSeq: not
  // by one of them.
  void revoke_at(Communicator& communicator, std::uint64_t seq, const Failure& failure);
  // A request of this rank was refused: its seq is spent, and the other ranks hear why.
  void refuse(Member& member, std::uint64_t seq, const Failure& told, std::uint64_t now_ns);
  // Has any rank called `seq`?
  bool begun(const Member& member, std::uint64_t seq) const;

  // Operations in flight end with `failure`; later ones with Aborted/Revoked and its text.
  void revoke(Communicator& communicator, const Failure& failure);
  void revoke_all(const Failure& failure);
  // Two that wait for each other; `culprit`, for whom the first one waited.
  void revoke_crossed(Communicator& communicator, Communicator& other, Rank culprit);
  // One that was formed and shall not be: nobody has called.
  void dissolve(Communicator& communicator);
  // Those that span nodes go here, and not before, so that their last notices can be told.
  void free_deserted();
  // Nobody is left: everything was revoked, and nothing runs.
  void clear();
  // The rank goes in good order: what all ranks had called still runs, the rest ends at once with
  // RemoteAborted.
  void leave(MemberId member);
  // The rank goes without order: the communicator is revoked.
  void drop(MemberId member, const Failure& failure);

  // The session is gone. Where it had left in good order but still waits, or runs, the communicator
  // is revoked: nobody may use its memory any more. `failure` gets the rank that it had there.
  using FailureOf = std::function<Failure(Rank)>;
  void abandon(const Session& session, const FailureOf& failure_of);

  // What all ranks have called, running or next in turn: a rank that goes must see it ended before
  // the memory is its alone.
  struct Committed {
    std::uint64_t communicator = 0;  // serial
    std::uint64_t last_seq = 0;
  };
  // Nothing where no operation of the communicator is committed.
  std::optional<Committed> committed(MemberId member) const;
  // Have they ended, or been given up before they ran?
  bool ended(const Committed& committed) const;

  // The oldest operation of the communicator may run: it is Running now. Null when nothing may.
  Communicator* next_ready();
  // What next_ready() gave runs in so many parts at once; told before the first can have ended. For
  // a backend that runs pieces of an operation side by side, one over NVLink and one over the
  // network, say: each calls completed(). The backends that there are run one part, and do not call
  // this.
  void run_in_parts(Communicator& communicator, std::uint32_t parts) {
    communicator.board.open_parts(parts);
  }
  // What next_ready() gave has ended, or one part of it: with the last one all of it has.
  void completed(Communicator& communicator, const Failure& outcome);

  // The communicator's running operation, not launched yet, is past its deadline: its failure is
  // set, and the communicator revoked. completed() is still the caller's.
  void expire(Communicator& communicator, std::uint64_t now_ns) {
    time_out(communicator, *communicator.board.head(), now_ns);
  }
  // In one turn: one that ends costs up to some 20 us.
  static constexpr int kMostTimeouts = 8;
  // Fails what is past its deadline: of at most kMostTimeouts communicators, the rest with the next
  // call. Cheap before next_deadline_ns().
  void sweep_deadlines(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns() const { return open_.next_deadline_ns(); }

  OperationList& finished() { return finished_; }
  std::size_t size() const { return communicators_.size(); }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& communicator : communicators_) visit(*communicator);
  }

 private:
  void bound_failures(Communicator& communicator,
                      std::uint32_t seat);  // whose call may have failed
  // Sets the end, and fails what was to come from there on.
  void end_at(Communicator& communicator, std::uint64_t first, Rank who_left);
  bool is_deserted(const Communicator& communicator) const;
  void erase(Communicator& communicator);
  void consider(Communicator& communicator);  // may its head run?
  // `why` becomes the communicator's state, `told` what its waiting operations hear.
  void end(Communicator& communicator, const Failure& why, const Failure& told);
  void time_out(Communicator& communicator, Arrival& arrival, std::uint64_t now_ns);
  // `failure` is the operation's; the others are only caught up in it.
  void end_by_one(Communicator& communicator, std::uint64_t seq, const Failure& failure);
  // The communicator in which a rank that `arrival` misses waits for a rank that waits here, or
  // null.
  Communicator* find_crossing(const Communicator& communicator, const Arrival& arrival) const;
  Communicator* find_crossing_between_nodes(const Communicator& communicator,
                                            const Arrival& arrival) const;
  void release(MemberId member);
  void free_if_empty(Communicator& communicator);

  RevokedListener revoked_;
  ArrivalPool arrivals_{256};
  FailedShare failed_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  IdTable<Member, MemberId> members_;
  ReadyQueue queue_;
  OperationList finished_;
  std::vector<Notice> notices_;
  bool may_be_deserted_ = false;  // one that spans nodes
  std::uint64_t last_serial_ = 0;
  OpenCommunicators open_;  // who may be late, and crossed
};

}  // namespace arcomm
