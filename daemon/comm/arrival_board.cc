#include "daemon/comm/arrival_board.h"

#include <algorithm>
#include <cinttypes>
#include <string_view>

namespace arcomm {
namespace {

constexpr std::size_t kFirstWindow = 16;

constexpr std::uint64_t bit(Rank rank) {
  return std::uint64_t{1} << rank;
}

bool same_whole(const Signature& a, const Signature& b) {
  return a.total_count == b.total_count && a.dtype == b.dtype && a.op == b.op && a.codec == b.codec;
}

// "rank 1 asked sum of 7 float32, rank 0 sum of 8 float32"
Failure mismatch(const Operation& late, const Arrival& arrival) {
  const auto text = [](std::string_view view) { return view.data(); };  // literals: zero-terminated
  if (same_whole(late.signature, arrival.signature)) {
    return make_failure(ErrorCode::FailedPrecondition, Reason::Mismatch, late.rank,
                        "cut differently: rank %d sent %" PRIu64 " at %" PRIu64 ", rank %d %" PRIu64
                        " at %" PRIu64 ", of %" PRIu64,
                        late.rank, late.signature.count, late.signature.first_element,
                        arrival.first_rank, arrival.signature.count,
                        arrival.signature.first_element, late.signature.total_count);
  }
  return make_failure(ErrorCode::FailedPrecondition, Reason::Mismatch, late.rank,
                      "rank %d asked %s of %" PRIu64 " %s, rank %d %s of %" PRIu64 " %s", late.rank,
                      text(text_of(late.signature.op)), late.signature.total_count,
                      text(text_of(late.signature.dtype)), arrival.first_rank,
                      text(text_of(arrival.signature.op)), arrival.signature.total_count,
                      text(text_of(arrival.signature.dtype)));
}

}  // namespace

ArrivalBoard::ArrivalBoard(ArrivalPool& pool, int ranks)
    : pool_(pool),
      all_(ranks >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ranks) - 1),
      window_(kFirstWindow) {}

ArrivalBoard::~ArrivalBoard() {
  for_each([this](Arrival& arrival) { pool_.give(&arrival); });
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
    ++size_;
  }
  return *find(seq);
}

void ArrivalBoard::arrive(Operation& operation, OperationList& finished) {
  Arrival& arrival = at(operation.seq);
  arrival.seen |= bit(operation.rank);
  if (arrival.state == Arrival::State::Failed) {
    operation.outcome = arrival.failure;
    finished.push(&operation);
    return retire();
  }
  if (arrival.first_rank == kNoRank) {
    arrival.first_rank = operation.rank;
    arrival.signature = operation.signature;
    arrival.first_ns = operation.admitted_ns;
    arrival.deadline_ns = operation.deadline_ns;
  }
  arrival.operations[static_cast<std::size_t>(operation.rank)] = &operation;
  arrival.deadline_ns = std::min(arrival.deadline_ns, operation.deadline_ns);
  if (operation.signature != arrival.signature)
    return fail(arrival, mismatch(operation, arrival), finished);
  if (arrival.seen == all_) {
    arrival.state = Arrival::State::Matched;
    arrival.matched_ns = operation.admitted_ns;
  }
}

void ArrivalBoard::refuse(Rank rank, std::uint64_t seq, const Failure& told, std::uint64_t now,
                          OperationList& finished) {
  Arrival& arrival = at(seq);
  arrival.seen |= bit(rank);
  if (arrival.first_ns == 0) arrival.first_ns = now;
  if (arrival.state == Arrival::State::Failed) return retire();
  fail(arrival, told, finished);
}

void ArrivalBoard::fail(Arrival& arrival, const Failure& failure, OperationList& finished) {
  if (arrival.state != Arrival::State::Failed) ++failed_;
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
    pool_.give(&arrival);
  }
  size_ = kept;
  failed_ = 0;
}

const Arrival* ArrivalBoard::waiting(Rank rank) const {
  for (std::uint64_t seq = base_; seq != base_ + size_; ++seq) {
    const Arrival* arrival = window_[seq & (window_.size() - 1)];
    if (arrival->state == Arrival::State::Gathering &&
        arrival->operations[static_cast<std::size_t>(rank)] != nullptr) {
      return arrival;
    }
  }
  return nullptr;
}

void ArrivalBoard::retire() {
  while (size_ != 0 && head()->state == Arrival::State::Failed && head()->seen == all_) {
    pool_.give(head());
    --failed_;
    ++base_;
    --size_;
  }
}

}  // namespace arcomm
