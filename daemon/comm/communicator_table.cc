#include "daemon/comm/communicator_table.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>

#include "daemon/comm/crossing.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kSweepEveryNs = 500'000;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

bool is_committed(const Arrival& arrival) {
  return arrival.state == Arrival::State::Matched || arrival.state == Arrival::State::Agreed ||
         arrival.state == Arrival::State::Running;
}

}  // namespace

std::vector<MemberId> CommunicatorTable::form(const UniqueIdBytes& id, std::uint64_t epoch,
                                              World world, std::vector<Seat> seats) {
  for (std::size_t index = 0; index < seats.size(); ++index) {
    seats[index].index = static_cast<std::uint32_t>(index);
    seats[index].rank = world.seated()[index];
  }
  communicators_.push_back(std::make_unique<Communicator>(id, epoch, std::move(world),
                                                          std::move(seats), arrivals_, &failed_));
  Communicator& communicator = *communicators_.back();
  communicator.serial = ++last_serial_;
  std::vector<MemberId> ids;
  for (Seat& seat : communicator.seats) {
    seat.member =
        members_.insert(std::make_unique<Member>(Member{&communicator, seat.rank, seat.index}));
    ids.push_back(seat.member);
  }
  return ids;
}

void CommunicatorTable::arrive(Operation& operation) {
  Member& member = *members_.find(operation.member);
  Communicator& communicator = *member.communicator;
  ++communicator.seats[member.seat].next_seq;
  if (!communicator.ready() || operation.seq >= communicator.ends_at) {
    operation.outcome = communicator.ready() ? communicator.ended : communicator.later;
    ++communicator.operations_failed;
    return finished_.push(&operation);
  }
  if (!communicator.board.in_window(operation.seq)) {
    communicator.operations_failed++;
    operation.outcome = make_failure(ErrorCode::ResourceExhausted, Reason::Quota, member.rank,
                                     "rank %d is %" PRIu64 " operations ahead of the slowest rank",
                                     member.rank, ArrivalBoard::kMaxAhead);
    finished_.push(&operation);
    return revoke(communicator, operation.outcome);
  }
  await_deadline(communicator, operation.deadline_ns);
  const bool was_over = communicator.spans_nodes() && communicator.board.is_over(operation.seq);
  Arrival* matched = communicator.board.arrive(operation, finished_);
  if (!communicator.spans_nodes()) {
    if (matched != nullptr) communicator.board.agree(*matched);
  } else if (matched != nullptr) {
    notices_.push_back({Notice::Kind::Matched, &communicator, operation.seq});
  } else if (operation.outcome.ok()) {
    notices_.push_back({Notice::Kind::Called, &communicator, operation.seq});
  } else if (!was_over) {
    notices_.push_back({Notice::Kind::Refused, &communicator, operation.seq, operation.outcome});
  }
  bound_failures(communicator, member.seat);
  consider(communicator);
}

void CommunicatorTable::await_deadline(Communicator& communicator, std::uint64_t deadline_ns) {
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  swept_next_ns_ = std::min(swept_next_ns_, deadline_ns);
  if (!std::exchange(communicator.listed, true)) open_.push_back(&communicator);
}

void CommunicatorTable::agree(Communicator& communicator, std::uint64_t seq, std::uint64_t now_ns) {
  Arrival* arrival = communicator.board.find(seq);
  if (arrival == nullptr) return;  // given up meanwhile
  arrival->agreed_ns = now_ns;
  communicator.board.agree(*arrival);
  consider(communicator);
}

void CommunicatorTable::limit(Communicator& communicator, std::uint64_t seq,
                              std::uint64_t deadline_ns) {
  Arrival* arrival = communicator.board.find(seq);
  if (arrival == nullptr || arrival->state == Arrival::State::Failed ||
      arrival->deadline_ns <= deadline_ns)
    return;
  arrival->deadline_ns = deadline_ns;
  await_deadline(communicator, deadline_ns);
}

void CommunicatorTable::refuse(Member& member, std::uint64_t seq, const Failure& told,
                               std::uint64_t now_ns) {
  Communicator& communicator = *member.communicator;
  ++communicator.seats[member.seat].next_seq;
  ++communicator.operations_failed;
  if (!communicator.ready() || seq >= communicator.ends_at) return;
  if (!communicator.board.in_window(seq)) return revoke(communicator, told);
  if (communicator.spans_nodes() && !communicator.board.is_over(seq))
    notices_.push_back({Notice::Kind::Refused, &communicator, seq, told});
  communicator.board.refuse(member.seat, seq, told, now_ns, finished_);
  bound_failures(communicator, member.seat);
  consider(communicator);
}

void CommunicatorTable::refuse_all(Communicator& communicator, std::uint64_t seq,
                                   const Failure& told, std::uint64_t now_ns) {
  if (!communicator.ready() || seq < communicator.board.base() || seq >= communicator.ends_at)
    return;
  if (!communicator.board.in_window(seq)) return revoke(communicator, told);
  if (communicator.board.is_over(seq)) return;
  ++communicator.operations_failed;
  communicator.board.refuse_all(seq, told, now_ns, finished_);
  bound_failures(communicator, 0);
  consider(communicator);
  may_be_deserted_ = true;
}

void CommunicatorTable::revoke_at(Communicator& communicator, std::uint64_t seq,
                                  const Failure& failure) {
  if (!communicator.ready()) return;
  seq == kNoSeq ? revoke(communicator, failure) : end_by_one(communicator, seq, failure);
}

void CommunicatorTable::bound_failures(Communicator& communicator, std::uint32_t seat) {
  if (communicator.board.failed() != 0 && communicator.board.failed_of(seat) > FailedShare::kMost) {
    return revoke(
        communicator,
        make_failure(ErrorCode::ResourceExhausted, Reason::Quota, communicator.seats[seat].rank,
                     "more than %" PRIu64
                     " operations of uid %u failed while other ranks did not call",
                     FailedShare::kMost, communicator.seats[seat].uid));
  }
  if (communicator.board.failed() <= ArrivalBoard::kMaxFailed) return;
  revoke(communicator,
         make_failure(ErrorCode::ResourceExhausted, Reason::Quota, kNoRank,
                      "more than %" PRIu64 " operations failed while a rank did not call",
                      ArrivalBoard::kMaxFailed));
}

bool CommunicatorTable::begun(const Member& member, std::uint64_t seq) const {
  const Arrival* arrival = member.communicator->board.find(seq);
  return arrival != nullptr && arrival->seen != 0;
}

void CommunicatorTable::revoke(Communicator& communicator, const Failure& failure) {
  end(communicator, failure, failure);
}

void CommunicatorTable::end(Communicator& communicator, const Failure& why, const Failure& told) {
  if (!communicator.ready()) return;
  communicator.revoked = why;
  communicator.later = make_failure(ErrorCode::Aborted, Reason::Revoked, why.culprit, "revoked: %s",
                                    why.text.data());
  // Where a part has failed, that is what the operation hears.
  if (Arrival* head = communicator.board.head(); communicator.running() && !head->is_part_failed)
    head->failure = told;
  communicator.board.for_each([&communicator](const Arrival& arrival) {
    if (arrival.state != Arrival::State::Failed) ++communicator.cut_off;
  });
  communicator.board.clear(told, finished_);
  if (communicator.spans_nodes()) may_be_deserted_ = true;
  revoked_(communicator);
}

void CommunicatorTable::revoke_all(const Failure& failure) {
  for (const auto& communicator : communicators_) revoke(*communicator, failure);
}

void CommunicatorTable::clear() {
  for (const auto& communicator : communicators_) {
    for (const Seat& seat : communicator->seats) members_.erase(seat.member);
  }
  first_ready_ = last_ready_ = nullptr;
  open_.clear();
  swept_ = 0;
  notices_.clear();
  communicators_.clear();
}

void CommunicatorTable::leave(MemberId id) {
  const Member* member = members_.find(id);
  if (member == nullptr) return;
  Communicator& communicator = *member->communicator;
  // The first operation that will never run: the rank has not called it, or left before all had
  // called, so that its memory must be left alone.
  std::uint64_t first = communicator.seats[member->seat].next_seq;
  communicator.board.for_each([&first](const Arrival& arrival) {
    if (arrival.state == Arrival::State::Gathering) first = std::min(first, arrival.seq);
  });
  if (communicator.ready() && first < communicator.ends_at) {
    end_at(communicator, first, member->rank);
    if (communicator.spans_nodes())
      notices_.push_back({Notice::Kind::Left, &communicator, first, communicator.ended});
  }
  release(id);
}

void CommunicatorTable::end_at(Communicator& communicator, std::uint64_t first, Rank who_left) {
  communicator.ends_at = first;
  const bool is_elsewhere = !communicator.world.is_here(who_left);
  const std::string_view node =
      is_elsewhere ? communicator.elsewhere->node_name(who_left) : std::string_view();
  communicator.ended =
      make_failure(ErrorCode::Aborted, Reason::RemoteAborted, who_left,
                   "rank %d%s%.*s left the communicator before seq %" PRIu64 " could run", who_left,
                   is_elsewhere ? " on " : "", static_cast<int>(node.size()), node.data(), first);
  const std::uint64_t end = communicator.board.base() + communicator.board.size();
  for (std::uint64_t seq = first; seq < end; ++seq) {
    Arrival* arrival = communicator.board.find(seq);
    // Where another node's end came earlier, what matched here will never be agreed on.
    if (arrival != nullptr &&
        (arrival->state == Arrival::State::Gathering || arrival->state == Arrival::State::Matched))
      communicator.board.fail(*arrival, communicator.ended, finished_);
  }
}

std::uint64_t CommunicatorTable::end_by(Communicator& communicator, std::uint64_t seq,
                                        Rank who_left) {
  const std::uint64_t first = std::min(seq, communicator.board.first_unmatched());
  if (!communicator.ready() || first >= communicator.ends_at) return communicator.ends_at;
  end_at(communicator, first, who_left);
  may_be_deserted_ = true;
  return first;
}

void CommunicatorTable::drop(MemberId id, const Failure& failure) {
  const Member* member = members_.find(id);
  if (member == nullptr) return;
  revoke(*member->communicator, failure);
  release(id);
}

void CommunicatorTable::abandon(const Session& session, const FailureOf& failure_of) {
  std::vector<std::pair<Communicator*, Rank>> held;
  for (Communicator* communicator : open_) {
    if (!communicator->ready()) continue;
    Rank rank = kNoRank;
    communicator->board.for_each_open([&](const Arrival& arrival) {
      for (const Operation* operation : arrival.operations) {
        if (operation != nullptr && operation->session == &session) rank = operation->rank;
      }
    });
    if (rank != kNoRank) held.emplace_back(communicator, rank);
  }
  for (const auto& [communicator, rank] : held) {
    revoke(*communicator, failure_of(rank));
    free_if_empty(*communicator);
  }
}

std::optional<CommunicatorTable::Committed> CommunicatorTable::committed(MemberId id) const {
  const Member* member = members_.find(id);
  if (member == nullptr) return std::nullopt;
  std::optional<Committed> found;
  member->communicator->board.for_each([&](const Arrival& arrival) {
    if (is_committed(arrival)) found = Committed{member->communicator->serial, arrival.seq};
  });
  return found;
}

bool CommunicatorTable::ended(const Committed& committed) const {
  return std::none_of(communicators_.begin(), communicators_.end(), [&](const auto& communicator) {
    if (communicator->serial != committed.communicator) return false;
    // They run from the head on, in turn: nobody has missed a seq that all have passed.
    const Arrival* head = communicator->board.head();
    return head != nullptr && is_committed(*head) && head->seq <= committed.last_seq;
  });
}

void CommunicatorTable::release(MemberId id) {
  const std::unique_ptr<Member> member = members_.erase(id);
  Communicator& communicator = *member->communicator;
  communicator.seats[member->seat].member = MemberId{};
  free_if_empty(communicator);
}

bool CommunicatorTable::is_deserted(const Communicator& communicator) const {
  if (communicator.queued || communicator.running()) return false;
  for (const Seat& seat : communicator.seats) {
    if (seat.member.valid()) return false;
  }
  // Nobody is left who could call, and what was gathering ended when its ranks went. What other
  // nodes have not agreed to yet goes on.
  return !communicator.spans_nodes() || !communicator.board.has_open();
}

void CommunicatorTable::free_if_empty(Communicator& communicator) {
  if (communicator.spans_nodes()) {
    may_be_deserted_ = true;
  } else if (is_deserted(communicator)) {
    erase(communicator);
  }
}

void CommunicatorTable::free_deserted() {
  if (!std::exchange(may_be_deserted_, false)) return;
  for (std::size_t i = 0; i < communicators_.size();) {
    Communicator& communicator = *communicators_[i];
    if (communicator.spans_nodes() && is_deserted(communicator)) {
      erase(communicator);
    } else {
      ++i;
    }
  }
}

void CommunicatorTable::erase(Communicator& communicator) {
  if (communicator.listed) {
    std::erase(open_, &communicator);
    swept_ = 0;  // who has moved forward is looked at again
  }
  std::erase_if(notices_,
                [&](const Notice& notice) { return notice.communicator == &communicator; });
  std::erase_if(communicators_,
                [&communicator](const auto& held) { return held.get() == &communicator; });
}

void CommunicatorTable::dissolve(Communicator& communicator) {
  for (const Seat& seat : communicator.seats) {
    if (seat.member.valid()) members_.erase(seat.member);
  }
  erase(communicator);
}

void CommunicatorTable::consider(Communicator& communicator) {
  const Arrival* head = communicator.board.head();
  if (communicator.queued || head == nullptr || head->state != Arrival::State::Agreed) return;
  communicator.queued = true;
  communicator.next_ready = nullptr;
  (first_ready_ == nullptr ? first_ready_ : last_ready_->next_ready) = &communicator;
  last_ready_ = &communicator;
}

Communicator* CommunicatorTable::next_ready() {
  while (first_ready_ != nullptr) {
    Communicator& communicator = *first_ready_;
    first_ready_ = communicator.next_ready;
    communicator.queued = false;
    const Arrival* head = communicator.board.head();
    if (head != nullptr && head->state == Arrival::State::Agreed) {
      communicator.board.run_head();
      return &communicator;
    }
    free_if_empty(communicator);  // it was revoked in between
  }
  return nullptr;
}

void CommunicatorTable::completed(Communicator& communicator, const Failure& part_outcome) {
  const std::optional<Failure> came_to = communicator.board.end_part(part_outcome);
  if (!came_to) return;
  const Failure& outcome = *came_to;
  const std::uint64_t bytes = communicator.board.head()->signature.send_bytes();
  if (outcome.ok()) {
    ++communicator.operations_done;
    communicator.bytes_reduced += bytes;
  } else {
    ++communicator.operations_failed;
  }
  communicator.board.complete_head(outcome, finished_);
  consider(communicator);
  free_if_empty(communicator);
}

void CommunicatorTable::sweep_deadlines(std::uint64_t now_ns) {
  if (now_ns < next_deadline_ns_) return;
  if (swept_ == 0) {
    // A flood of short deadlines must not make every turn of the loop look at everything.
    if (now_ns < last_sweep_ns_ + kSweepEveryNs) {
      next_deadline_ns_ = last_sweep_ns_ + kSweepEveryNs;
      return;
    }
    last_sweep_ns_ = now_ns;
    swept_next_ns_ = kNever;
  }
  int timeouts = 0;
  while (swept_ < open_.size()) {
    Communicator& communicator = *open_[swept_];
    if (!communicator.board.has_open()) {
      communicator.listed = false;
      open_[swept_] = open_.back();
      open_.pop_back();
      continue;
    }
    if (timeouts == kMostTimeouts) return;  // it stays due
    ++swept_;
    Arrival* late = nullptr;
    communicator.board.for_each_open([&](Arrival& arrival) {
      if (arrival.deadline_ns == 0) return;
      if (arrival.state == Arrival::State::Running && !arrival.failure.ok())
        return;  // told already
      if (arrival.deadline_ns > now_ns) {
        swept_next_ns_ = std::min(swept_next_ns_, arrival.deadline_ns);
      } else if (late == nullptr) {
        late = &arrival;
      }
    });
    if (late == nullptr) continue;
    time_out(communicator, *late, now_ns);
    ++timeouts;
  }
  swept_ = 0;
  next_deadline_ns_ = swept_next_ns_;
}

void CommunicatorTable::revoke_crossed(Communicator& communicator, Communicator& other,
                                       Rank culprit) {
  const auto failure = [](const Communicator& mine, const Communicator& theirs, Rank whose) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Crossed, whose,
                        "communicators %s and %s wait for each other: same order on all ranks?",
                        short_name(mine.unique_id, 4).c_str(),
                        short_name(theirs.unique_id, 4).c_str());
  };
  revoke(other, failure(other, communicator, kNoRank));
  revoke(communicator, failure(communicator, other, culprit));
}

void CommunicatorTable::time_out(Communicator& communicator, Arrival& arrival,
                                 std::uint64_t now_ns) {
  Failure failure = describe_timeout(communicator, arrival, now_ns);
  Communicator* other =
      arrival.state == Arrival::State::Gathering ? find_crossing(communicator, arrival) : nullptr;
  const bool waits_for_nodes = communicator.spans_nodes() && failure.culprit != kNoRank;
  if (other == nullptr && waits_for_nodes)
    other = find_crossing_between_nodes(communicator, arrival);
  if (other != nullptr) return revoke_crossed(communicator, *other, failure.culprit);
  end_by_one(communicator, arrival.seq, failure);
}

void CommunicatorTable::end_by_one(Communicator& communicator, std::uint64_t seq,
                                   const Failure& failure) {
  communicator.revoked_at = seq;
  Arrival* arrival = communicator.board.find(seq);
  if (arrival != nullptr && arrival->state == Arrival::State::Running)
    return revoke(communicator, failure);
  // The operation whose deadline passed says so; the others are only caught up in it.
  if (arrival != nullptr && arrival->state != Arrival::State::Failed) {
    communicator.board.fail(*arrival, failure, finished_);
    ++communicator.operations_failed;
  }
  Failure told = failure;
  told.code = ErrorCode::Aborted;
  told.reason = Reason::Revoked;
  end(communicator, failure, told);
}

Communicator* CommunicatorTable::find_crossing_between_nodes(const Communicator& communicator,
                                                             const Arrival& arrival) const {
  for (const auto& other : communicators_) {
    if (other.get() == &communicator || !other->ready() || !other->spans_nodes()) continue;
    if (cross_between_nodes(communicator, arrival.seq, *other)) return other.get();
  }
  return nullptr;
}

Communicator* CommunicatorTable::find_crossing(const Communicator& communicator,
                                               const Arrival& arrival) const {
  for (const Seat& missing : communicator.seats) {
    if (arrival.has_seen(missing.index)) continue;
    for (Communicator* other : open_) {
      if (other == &communicator || !other->ready()) continue;
      for (const Seat& there : other->seats) {
        if (there.session != missing.session) continue;
        const Arrival* waits = other->board.waiting(there.index);
        if (waits == nullptr) continue;
        // It waits there. Does it wait for somebody who waits here?
        const bool crossed =
            std::any_of(other->seats.begin(), other->seats.end(), [&](const Seat& absent) {
              return !waits->has_seen(absent.index) &&
                     std::any_of(communicator.seats.begin(), communicator.seats.end(),
                                 [&](const Seat& here) {
                                   return arrival.has_seen(here.index) &&
                                          here.session == absent.session;
                                 });
            });
        if (crossed) return other;
      }
    }
  }
  return nullptr;
}

}  // namespace arcomm
