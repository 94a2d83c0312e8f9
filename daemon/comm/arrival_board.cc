#include "daemon/comm/arrival_board.h"

#include <algorithm>

#include "daemon/comm/mismatch.h"

namespace arcomm {
namespace {

constexpr std::size_t kFirstWindow = 16;

constexpr std::uint64_t bit(std::uint32_t seat) {
  return std::uint64_t{1} << seat;
}

}  // namespace

ArrivalBoard::ArrivalBoard(ArrivalPool& pool, int seats, std::vector<uid_t> uids,
                           FailedShare* share)
    : pool_(pool),
      all_(seats >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << seats) - 1),
      uids_(std::move(uids)),
      share_(share),
      window_(kFirstWindow) {}

ArrivalBoard::~ArrivalBoard() {
  for_each([this](Arrival& arrival) { give(&arrival); });
}

void ArrivalBoard::append_open(Arrival& arrival) {
  arrival.open_before = last_open_;
  (last_open_ == nullptr ? first_open_ : last_open_->open_behind) = &arrival;
  last_open_ = &arrival;
  if (first_gathering_ == nullptr) first_gathering_ = &arrival;
}

void ArrivalBoard::remove_open(Arrival& arrival) {
  if (first_gathering_ == &arrival) first_gathering_ = arrival.open_behind;
  (arrival.open_before == nullptr ? first_open_ : arrival.open_before->open_behind) =
      arrival.open_behind;
  (arrival.open_behind == nullptr ? last_open_ : arrival.open_behind->open_before) =
      arrival.open_before;
  arrival.open_before = arrival.open_behind = nullptr;
  pass_matched();
}

void ArrivalBoard::pass_matched() {
  while (first_gathering_ != nullptr && first_gathering_->state != Arrival::State::Gathering)
    first_gathering_ = first_gathering_->open_behind;
}

void ArrivalBoard::give(Arrival* arrival) {
  if (arrival->is_charged) share_->drop(arrival->payer);
  pool_.give(arrival);
}

Arrival* ArrivalBoard::find(std::uint64_t seq) const {
  return seq >= base_ && seq - base_ < size_ ? window_[seq & (window_.size() - 1)] : nullptr;
}

Arrival& ArrivalBoard::at(std::uint64_t seq) {
  while (size_ <= seq - base_) {
    if (size_ == window_.size()) {
      std::vector<Arrival*> larger(window_.size() * 2);
      for_each(
          [&larger](Arrival& arrival) { larger[arrival.seq & (larger.size() - 1)] = &arrival; });
      window_.swap(larger);
    }
    Arrival* arrival = pool_.take();
    *arrival = Arrival{};
    arrival->seq = base_ + size_;
    window_[arrival->seq & (window_.size() - 1)] = arrival;
    append_open(*arrival);
    ++size_;
  }
  return *find(seq);
}

Arrival* ArrivalBoard::arrive(Operation& operation, OperationList& finished) {
  Arrival& arrival = at(operation.seq);
  arrival.seen |= bit(operation.seat);
  if (arrival.state == Arrival::State::Failed) {
    operation.outcome = arrival.failure;
    finished.push(&operation);
    retire();
    return nullptr;
  }
  if (arrival.first_rank == kNoRank) {
    arrival.first_rank = operation.rank;
    arrival.signature = operation.signature;
    arrival.identity = operation.identity;
    arrival.first_ns = operation.admitted_ns;
    arrival.deadline_ns = operation.deadline_ns;
  }
  arrival.operations[operation.seat] = &operation;
  arrival.deadline_ns = std::min(arrival.deadline_ns, operation.deadline_ns);
  if (operation.signature != arrival.signature) {
    fail(arrival,
         mismatch_of(operation.rank, operation.signature, arrival.first_rank, arrival.signature),
         finished, operation.seat);
    return nullptr;
  }
  if (operation.identity != arrival.identity) {
    fail(arrival,
         reordered(operation.rank, operation.identity, arrival.first_rank, arrival.identity),
         finished, operation.seat);
    return nullptr;
  }
  if (arrival.seen != all_) return nullptr;
  arrival.state = Arrival::State::Matched;
  arrival.matched_ns = operation.admitted_ns;
  pass_matched();
  return &arrival;
}

void ArrivalBoard::agree(Arrival& arrival) {
  if (arrival.state == Arrival::State::Matched) arrival.state = Arrival::State::Agreed;
}

void ArrivalBoard::refuse(std::uint32_t seat, std::uint64_t seq, const Failure& told,
                          std::uint64_t now, OperationList& finished) {
  Arrival& arrival = at(seq);
  arrival.seen |= bit(seat);
  if (arrival.first_ns == 0) arrival.first_ns = now;
  if (arrival.state == Arrival::State::Failed) return retire();
  fail(arrival, told, finished, seat);
}

void ArrivalBoard::refuse_all(std::uint64_t seq, const Failure& told, std::uint64_t now,
                              OperationList& finished) {
  Arrival& arrival = at(seq);
  if (arrival.first_ns == 0) arrival.first_ns = now;
  if (arrival.state != Arrival::State::Failed && arrival.state != Arrival::State::Running)
    fail(arrival, told, finished);
}

void ArrivalBoard::fail(Arrival& arrival, const Failure& failure, OperationList& finished,
                        std::uint32_t seat) {
  if (arrival.state != Arrival::State::Failed) {
    ++failed_;
    remove_open(arrival);
    arrival.is_charged = share_ != nullptr && arrival.seen != all_;
    arrival.payer = uid_of(seat);
    if (arrival.is_charged) share_->add(arrival.payer);
  }
  arrival.state = Arrival::State::Failed;
  arrival.failure = failure;
  for (Operation*& operation : arrival.operations) {
    if (operation == nullptr) continue;
    operation->outcome = failure;
    finished.push(operation);
    operation = nullptr;
  }
  retire();
}

void ArrivalBoard::run_head() {
  head()->state = Arrival::State::Running;
  head()->open_parts = 1;
}

void ArrivalBoard::open_parts(std::uint32_t parts) {
  head()->open_parts = parts;
}

std::optional<Failure> ArrivalBoard::end_part(const Failure& outcome) {
  Arrival& arrival = *head();
  const bool is_last = --arrival.open_parts == 0;
  if (is_last) return arrival.is_part_failed ? arrival.failure : outcome;
  // What the others hear that are still to be stopped.
  if (!outcome.ok() && !arrival.is_part_failed) {
    arrival.is_part_failed = true;
    arrival.failure = outcome;
  }
  return std::nullopt;
}

void ArrivalBoard::complete_head(const Failure& outcome, OperationList& finished) {
  Arrival& arrival = *head();
  arrival.seen = all_;
  fail(arrival, outcome, finished);
}

void ArrivalBoard::clear(const Failure& failure, OperationList& finished) {
  const bool runs = size_ != 0 && head()->state == Arrival::State::Running;
  const std::uint64_t kept = runs ? 1 : 0;
  for (std::uint64_t seq = base_ + kept; seq != base_ + size_; ++seq) {
    Arrival& arrival = *window_[seq & (window_.size() - 1)];
    for (Operation* operation : arrival.operations) {
      if (operation == nullptr) continue;
      operation->outcome = failure;
      finished.push(operation);
    }
    give(&arrival);
  }
  size_ = kept;
  failed_ = 0;
  first_open_ = last_open_ = runs ? head() : nullptr;
  first_gathering_ = nullptr;
  if (runs) head()->open_before = head()->open_behind = nullptr;
}

void ArrivalBoard::retire() {
  while (size_ != 0 && head()->state == Arrival::State::Failed && head()->seen == all_) {
    give(head());
    --failed_;
    ++base_;
    --size_;
  }
}

}  // namespace arcomm
