// Who has called what, for one communicator: the ranks of this node, each at its seat, arrive one
// by one at each sequence number, and what they ask for is compared before any byte is touched.
// Thread: the worker's. Arrivals come from the worker's pool and go back when every rank has been
// answered.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/comm/failed_share.h"
#include "daemon/memory/pool.h"
#include "daemon/plan/failure.h"
#include "daemon/plan/operation.h"
#include "proto/types.h"

namespace arcomm {

// One collective operation: the seats' operations at one sequence number.
struct Arrival {
  enum class State : std::uint8_t {
    Gathering,  // some seats have not called
    Matched,    // all have, with one signature: the nodes have still to agree on it
    Agreed,     // they have, as one node always does: it may run when it is the oldest
    Running,    // in one part or several, at once
    Failed,     // those who called were told `failure`; those who still come will be
  };
  std::uint64_t seq = 0;
  State state = State::Gathering;
  // Of the first rank to arrive.
  Signature signature;
  std::uint32_t identity = kNoIdentity;
  Rank first_rank = kNoRank;
  std::uint64_t seen = 0;                          // bit s: seat s has called, or was refused
  std::array<Operation*, kMaxRanks> operations{};  // by seat; null where absent or already answered
  std::uint64_t first_ns = 0;                      // when the first rank arrived
  std::uint64_t matched_ns = 0;
  std::uint64_t agreed_ns = 0;    // of one that spans nodes
  std::uint64_t deadline_ns = 0;  // the earliest of its ranks
  std::uint32_t open_parts = 0;   // Running: those that have not ended
  bool is_part_failed = false;    // one has, with `failure`
  Failure failure;                // Failed, or Running and to be stopped
  // Failed, and a rank has still to hear of it: on whose share it is, as that one's call made it
  // so.
  bool is_charged = false;
  uid_t payer = 0;
  // The one before and behind it that has not failed either: in order of seq.
  Arrival* open_before = nullptr;
  Arrival* open_behind = nullptr;

  bool has_seen(std::uint32_t seat) const { return (seen >> seat & 1) != 0; }
};

using ArrivalPool = Pool<Arrival>;

class ArrivalBoard {
 public:
  // How far one rank may run ahead of the slowest.
  static constexpr std::uint64_t kMaxAhead = 65'536;
  // Failed arrivals that may wait for a rank to come and hear of it. Nothing else bounds them: the
  // operations of a failed arrival are no longer in flight, so a rank could pile up refused
  // requests.
  static constexpr std::uint64_t kMaxFailed = 256;

  // uids, share: who sits where, and what each has used up; none: nobody counts.
  ArrivalBoard(ArrivalPool& pool, int seats, std::vector<uid_t> uids = {},
               FailedShare* share = nullptr);
  ~ArrivalBoard();
  ArrivalBoard(const ArrivalBoard&) = delete;
  ArrivalBoard& operator=(const ArrivalBoard&) = delete;

  // Precondition: in_window(operation.seq), and this rank has not been seen there. Operations that
  // end here (a mismatch ends all that wait, a late rank meets an old failure) go to `finished`
  // with their outcome set. The arrival that is Matched by this one, or null.
  Arrival* arrive(Operation& operation, OperationList& finished);
  // The nodes have agreed on a Matched one.
  void agree(Arrival& arrival);
  // This seat's request at `seq` was refused: the other ranks hear `told`, now or when they come.
  void refuse(std::uint32_t seat, std::uint64_t seq, const Failure& told, std::uint64_t now,
              OperationList& finished);
  // Another node says that the operation at `seq` has ended so, whoever has called it here. Nothing
  // where it has failed already, or runs. Precondition: in_window(seq).
  void refuse_all(std::uint64_t seq, const Failure& told, std::uint64_t now,
                  OperationList& finished);
  // Ends one arrival that is not Running; ranks that come later meet the failure. `seat`: whose
  // call made it fail.
  void fail(Arrival& arrival, const Failure& failure, OperationList& finished,
            std::uint32_t seat = 0);
  // The head, which is Agreed, runs: in one part, until open_parts() says how many there are.
  void run_head();
  void open_parts(std::uint32_t parts);
  // One part of the running head has ended so. Nothing while others run; else what the operation
  // came to, for complete_head(): the first failure of a part, or success.
  std::optional<Failure> end_part(const Failure& outcome);
  // The oldest one ran: all its operations go to `finished` with `outcome`.
  void complete_head(const Failure& outcome, OperationList& finished);
  // Ends everything but a Running head and forgets it; the communicator answers from now on.
  void clear(const Failure& failure, OperationList& finished);

  bool in_window(std::uint64_t seq) const { return seq >= base_ && seq - base_ < kMaxAhead; }
  // The oldest arrival that is not answered for all ranks, or null.
  Arrival* head() const { return size_ == 0 ? nullptr : window_[base_ & (window_.size() - 1)]; }
  Arrival* find(std::uint64_t seq) const;
  // The oldest one in which `seat` waits for others, or null. Seats call in order: it waits in the
  // oldest that gathers, or nowhere.
  const Arrival* waiting(std::uint32_t seat) const {
    const Arrival* oldest = first_gathering_;
    return oldest != nullptr && oldest->operations[seat] != nullptr ? oldest : nullptr;
  }
  // The first that some seat has not called, as far as those that failed do not hide it.
  std::uint64_t first_unmatched() const {
    return first_gathering_ == nullptr ? base_ + size_ : first_gathering_->seq;
  }
  std::uint64_t base() const { return base_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t failed() const { return failed_; }
  bool complete(const Arrival& arrival) const { return arrival.seen == all_; }
  // It failed, or ended and is forgotten: who still comes hears of it.
  bool is_over(std::uint64_t seq) const {
    const Arrival* arrival = find(seq);
    return seq < base_ || (arrival != nullptr && arrival->state == Arrival::State::Failed);
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint64_t seq = base_; seq != base_ + size_; ++seq) {
      visit(*window_[seq & (window_.size() - 1)]);
    }
  }
  // Those that have not failed, which are few where many have.
  bool has_open() const { return first_open_ != nullptr; }
  const Arrival* oldest_open() const { return first_open_; }
  template <typename Visit>
  void for_each_open(Visit visit) const {
    for (Arrival* arrival = first_open_; arrival != nullptr; arrival = arrival->open_behind)
      visit(*arrival);
  }
  // The user has more failed ones on all boards than may be; never where nobody counts.
  bool is_share_over(std::uint32_t seat) const {
    return share_ != nullptr && share_->is_over(uid_of(seat));
  }

 private:
  Arrival& at(std::uint64_t seq);
  uid_t uid_of(std::uint32_t seat) const { return seat < uids_.size() ? uids_[seat] : 0; }
  void append_open(Arrival& arrival);
  void remove_open(Arrival& arrival);
  void pass_matched();  // first_gathering_ goes on to the next that gathers
  void give(Arrival* arrival);
  void retire();  // gives back failed arrivals at the front that every seat has seen

  ArrivalPool& pool_;
  std::uint64_t all_;        // bits of all seats
  std::vector<uid_t> uids_;  // by seat
  FailedShare* share_;
  std::uint64_t base_ = 0;
  std::uint64_t size_ = 0;    // sequence numbers base_ .. base_ + size_ - 1 are in window_
  std::uint64_t failed_ = 0;  // of them, in state Failed
  Arrival* first_open_ = nullptr;
  Arrival* last_open_ = nullptr;
  Arrival* first_gathering_ = nullptr;
  std::vector<Arrival*> window_;  // a ring, its size a power of two
};

}  // namespace arcomm
