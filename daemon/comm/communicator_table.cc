#include "daemon/comm/communicator_table.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>

#include "daemon/comm/crossing.h"

namespace arcomm {
namespace {

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
  open_.await(communicator, operation.deadline_ns);
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
  open_.await(communicator, deadline_ns);
}

void CommunicatorTable::note_waiting_elsewhere(Communicator& communicator) {
  if (communicator.ready()) open_.list(communicator);
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
  if (const std::optional<Failure> bound = describe_too_many_failed(communicator, seat))
    revoke(communicator, *bound);
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
  queue_.clear();
  open_.clear();
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
  communicator.ended = describe_leave(communicator, who_left, first);
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
  for (Communicator* communicator : open_.all()) {
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
  open_.erase(communicator);
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
  if (head != nullptr && head->state == Arrival::State::Agreed) queue_.push(communicator);
}

Communicator* CommunicatorTable::next_ready() {
  while (Communicator* communicator = queue_.pop()) {
    const Arrival* head = communicator->board.head();
    if (head != nullptr && head->state == Arrival::State::Agreed) {
      communicator->board.run_head();
      return communicator;
    }
    free_if_empty(*communicator);  // it was revoked in between
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
  if (!open_.begin_sweep(now_ns)) return;
  for (int timeouts = 0; timeouts < kMostTimeouts; ++timeouts) {
    const std::optional<OpenCommunicators::Late> late = open_.next_late(now_ns);
    if (!late) return;
    time_out(late->communicator, late->arrival, now_ns);
  }
}

void CommunicatorTable::revoke_crossed(Communicator& communicator, Communicator& other,
                                       Rank culprit) {
  revoke(other, describe_crossing(other, communicator, kNoRank));
  revoke(communicator, describe_crossing(communicator, other, culprit));
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
  for (Communicator* other : open_.all()) {
    if (other == &communicator || !other->ready() || !other->spans_nodes()) continue;
    if (cross_between_nodes(communicator, arrival.seq, *other)) return other;
  }
  return nullptr;
}

Communicator* CommunicatorTable::find_crossing(const Communicator& communicator,
                                               const Arrival& arrival) const {
  for (Communicator* other : open_.all()) {
    if (other == &communicator || !other->ready()) continue;
    if (cross_here(communicator, arrival, *other)) return other;
  }
  return nullptr;
}

}  // namespace arcomm
