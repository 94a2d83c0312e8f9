#include "daemon/exec/net/operations/ring_operation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/partition.h"

namespace arcomm {
namespace {

// As on all nodes, whatever windows they could get.
RingShape shape_of(const NetworkQuestion& question, std::size_t wire_bytes,
                   std::uint32_t slot_bytes, std::uint64_t slots, const Settings::Ring& limits) {
  const RingRoom room{.element_bytes = wire_bytes,
                      .most_chunk_bytes = slot_bytes,
                      .staging_bytes = slots * slot_bytes};
  RingShape shape = ring_shape(question.count * wire_bytes, question.nodes, room, limits);
  // A piece is whole cache lines of results.
  shape.chunk_bytes = std::max<std::uint64_t>(
      shape.chunk_bytes, kCacheLineBytes / size_of(question.dtype) * wire_bytes);
  shape.slots = std::clamp<std::uint64_t>(shape.slots, 1, slots);
  return shape;
}

}  // namespace

Status RingOperation::begin(const NetworkRequest& request) {
  if (!group_.has_rooms()) {
    return error(ErrorCode::Internal, Reason::Bug, "a ring was chosen where its policy has none");
  }
  const NetworkQuestion& question = request.question;
  seats_.begin(request.communicator, request.arrival, question, request.choice.partials);
  seq_ = request.arrival.seq;
  const RingShape shape =
      shape_of(question, seats_.wire_bytes(), group_.slot_bytes(), kSumRooms, group_.policy().ring);
  schedule_.emplace(group_.nodes(), group_.here(), shape.bidirectional);
  rounds_.emplace(question, shape, seats_.wire_bytes());
  most_chunks_ = 1;
  for (std::uint64_t round = 0; round < rounds_->count(); ++round) {
    for (std::uint32_t shard = 0; shard < group_.nodes(); ++shard) {
      most_chunks_ = std::max(most_chunks_,
                              chunks_in(rounds_->piece(shard, round), rounds_->chunk_elements()));
    }
  }
  sums_out_ = {RingWay::SumsOut, *schedule_, *rounds_};
  sums_in_ = {RingWay::SumsIn, *schedule_, *rounds_};
  from_left_ = {RingWay::ResultsIn, *schedule_, *rounds_};
  from_right_ = {RingWay::ResultsFore, *schedule_, *rounds_};
  right_ = {.to = schedule_->right(), .cursor = {RingWay::ResultsOut, *schedule_, *rounds_}};
  left_ = {.to = schedule_->left(), .cursor = {RingWay::ResultsBack, *schedule_, *rounds_}};
  own_sent_ = joined_ = passed_ = finished_ = 0;
  return region_.begin(group_, seq_, seats_.result(),
                       rounds_->count() * group_.nodes() * most_chunks_);
}

std::uint32_t RingOperation::number_of(const RingCursor& cursor) const {
  return static_cast<std::uint32_t>(
      (cursor.round() * group_.nodes() + cursor.shard()) * most_chunks_ + cursor.chunk());
}

bool RingOperation::advance() {
  bool has_computed = false;
  bool moved = forward(right_);
  moved |= forward(left_);
  moved |= send_sums(has_computed);
  if (!has_computed && take_sum()) {
    moved = has_computed = true;
    send_sums(has_computed);
    forward(right_);
    forward(left_);
  }
  moved |= place(from_left_, has_computed);
  moved |= place(from_right_, has_computed);
  group_.give_credits();
  return moved;
}

bool RingOperation::send_sums(bool& has_computed) {
  bool moved = false;
  const std::uint32_t right = schedule_->right();
  while (!sums_out_.at_end() && group_.may_send(right)) {
    if (sums_out_.at_first_step()) {
      if (has_computed || !send_own(sums_out_.range(), has_computed)) break;
    } else {
      if (passed_ == joined_) break;
      const std::uint64_t room = passed_ % kSumRooms;
      if (!group_.send(right, seq_, {group_.room(room), joined_bytes_[room]},
                       group_.partials().of(right, room)))
        break;
      ++passed_;
    }
    sums_out_.next();
    moved = true;
  }
  return moved;
}

bool RingOperation::send_own(const ElementRange& range, bool& has_computed) {
  const std::uint64_t place = kSumRooms + own_sent_ % (NodeGroup::kRooms - kSumRooms);
  net::OnLoan& on_loan = group_.partials().of(schedule_->right(), place);
  if (!seats_.is_input() && !group_.partials().is_back(schedule_->right(), place)) return false;
  has_computed = !seats_.is_input();
  const auto payload = seats_.partial(range.first, range.last, group_.room(place));
  if (!group_.send(schedule_->right(), seq_, payload, on_loan)) return false;
  ++own_sent_;
  return true;
}

bool RingOperation::take_sum() {
  const std::uint32_t left = schedule_->left();
  if (sums_in_.at_end()) return false;
  const std::byte* const sum = group_.arrived(left);
  if (sum == nullptr) return false;
  const ElementRange range = sums_in_.range();
  if (sums_in_.at_last_step()) {
    const auto own = seats_.partial(range.first, range.last, group_.scratch());
    seats_.finish(range.first, range.last, std::array{sum, own.data()});
    ++finished_;
  } else {
    const std::uint64_t room = joined_ % kSumRooms;
    if (joined_ - passed_ == kSumRooms || !group_.partials().is_back(schedule_->right(), room))
      return false;
    joined_bytes_[room] = seats_.join(range.first, range.last, sum, group_.room(room)).size();
    ++joined_;
  }
  group_.use_up(left);
  group_.notes().arrived(range.size() * seats_.wire_bytes());
  sums_in_.next();
  return true;
}

bool RingOperation::forward(Forward& way) {
  bool moved = false;
  Loans& loans = group_.results();
  while (!way.cursor.at_end() && loans.is_back(way.to, way.put)) {
    const bool is_own = way.cursor.at_first_step();
    const std::uint32_t number = number_of(way.cursor);
    if (is_own ? way.own == finished_ : !region_.has(number)) break;
    const ElementRange range = way.cursor.range();
    const std::uint64_t offset = range.first * seats_.element_bytes();
    if (!group_.put(way.to, seq_, offset, number,
                    seats_.result().subspan(offset, range.size() * seats_.element_bytes()),
                    loans.of(way.to, way.put)))
      break;
    ++way.put;
    if (is_own) ++way.own;
    way.cursor.next();
    moved = true;
  }
  return moved;
}

bool RingOperation::place(RingCursor& cursor, bool& has_computed) {
  bool moved = false;
  while (!has_computed && !cursor.at_end() && region_.has(number_of(cursor))) {
    const ElementRange range = cursor.range();
    group_.notes().arrived(range.size() * seats_.element_bytes());
    if (seats_.has_others()) {
      seats_.spread(range.first, range.last);
      has_computed = true;
    }
    cursor.next();
    moved = true;
  }
  return moved;
}

bool RingOperation::is_done() const {
  return sums_out_.at_end() && sums_in_.at_end() && right_.cursor.at_end() &&
         left_.cursor.at_end() && from_left_.at_end() && from_right_.at_end();
}

bool RingOperation::let_go() {
  const bool is_removed = region_.end();
  return is_removed && group_.partials().are_back() && group_.results().are_back();
}

}  // namespace arcomm
