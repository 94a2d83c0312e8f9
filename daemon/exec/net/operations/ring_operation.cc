#include "daemon/exec/net/operations/ring_operation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/plan/network/network_payload.h"

namespace arcomm {
namespace {

// As on all nodes, whatever windows they could get.
RingShape shape_of(const NetworkQuestion& question, DType partials, const Settings::Ring& limits) {
  RingShape shape = ring_shape(partial_bytes(question, partials, question.count), question.nodes,
                               ring_room_of_hosts(question, partials), limits);
  shape.slots = std::clamp<std::uint64_t>(shape.slots, 1, kRingRooms);
  return shape;
}

}  // namespace

Status RingOperation::begin(const NetworkRequest& request) {
  if (!group_.has_rooms()) {
    return error(ErrorCode::Internal, Reason::Bug, "a ring was chosen where its policy has none");
  }
  const NetworkQuestion& question = request.question;
  const DType partials = request.choice.partials;
  seats_.begin(request.communicator, request.arrival, question, partials);
  seq_ = request.arrival.seq;
  if (seats_.is_coded()) ARC_RETURN_IF_ERROR(group_.make_result_rooms());
  const RingShape shape = shape_of(question, partials, group_.policy().ring);
  schedule_.emplace(group_.nodes(), group_.here(), shape.bidirectional);
  rounds_.emplace(question, ring_chunk(question, partials, shape.chunk_bytes), shape.slots);
  most_chunks_ = 1;
  for (std::uint64_t round = 0; round < rounds_->count(); ++round) {
    for (std::uint32_t shard = 0; shard < group_.nodes(); ++shard) {
      most_chunks_ = std::max(most_chunks_,
                              chunks_in(rounds_->piece(shard, round), rounds_->chunk_elements()));
    }
  }
  sums_out_ = {RingWay::SumsOut, *schedule_, *rounds_};
  sums_in_ = {RingWay::SumsIn, *schedule_, *rounds_};
  from_left_ = {.cursor = {RingWay::ResultsIn, *schedule_, *rounds_}};
  from_right_ = {.cursor = {RingWay::ResultsFore, *schedule_, *rounds_}};
  right_ = {.to = schedule_->right(), .cursor = {RingWay::ResultsOut, *schedule_, *rounds_}};
  left_ = {.to = schedule_->left(), .cursor = {RingWay::ResultsBack, *schedule_, *rounds_}};
  for (Forward* way : {&right_, &left_}) way->is_used = !way->cursor.at_end();
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
  moved |= place(from_left_, right_, has_computed);
  moved |= place(from_right_, left_, has_computed);
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
    if (seats_.is_coded() && !result_room_is_free()) return false;
    finish(range, sum);
  } else {
    const std::uint64_t room = joined_ % kSumRooms;
    if (joined_ - passed_ == kSumRooms || !group_.partials().is_back(schedule_->right(), room))
      return false;
    joined_bytes_[room] = seats_.join(range.first, range.last, sum, group_.room(room)).size();
    ++joined_;
  }
  group_.use_up(left);
  group_.notes().arrived(seats_.bytes_of_partial(range.size()));
  sums_in_.next();
  return true;
}

void RingOperation::finish(const ElementRange& range, const std::byte* sum) {
  const auto own = seats_.partial(range.first, range.last, group_.scratch());
  const std::array partials{sum, own.data()};
  if (seats_.is_coded()) {
    seats_.finish_coded(range.first, range.last, partials, group_.result_room(finished_));
  } else {
    seats_.finish(range.first, range.last, partials);
  }
  ++finished_;
}

bool RingOperation::has_left(const Forward& way, const Puts& puts, std::uint64_t chunk) const {
  if (chunk >= puts.count) return false;
  if (puts.count - chunk > Loans::kAhead) return true;  // its place was used again
  const std::uint64_t place = puts.place[chunk % Loans::kAhead];
  return way.put - place > Loans::kAhead || group_.results().is_back(way.to, place);
}

// Its last chunk's blocks have left, to both sides where results go both ways.
bool RingOperation::result_room_is_free() const {
  if (finished_ < Loans::kAhead) return true;
  const std::uint64_t before = finished_ - Loans::kAhead;
  for (const Forward* way : {&right_, &left_}) {
    if (way->is_used && !has_left(*way, way->own, before)) return false;
  }
  return true;
}

std::span<const std::byte> RingOperation::payload_of(const Forward& way,
                                                     const ElementRange& range) const {
  const std::uint64_t bytes = seats_.bytes_of_result(range.size());
  if (way.cursor.at_first_step() && seats_.codes_result(range.size()))
    return {group_.result_room(way.own.count), bytes};
  return seats_.result().subspan(range.first * seats_.element_bytes(), bytes);
}

bool RingOperation::forward(Forward& way) {
  bool moved = false;
  Loans& loans = group_.results();
  while (!way.cursor.at_end() && loans.is_back(way.to, way.put)) {
    const bool is_own = way.cursor.at_first_step();
    const std::uint32_t number = number_of(way.cursor);
    if (is_own ? way.own.count == finished_ : !region_.has(number)) break;
    const ElementRange range = way.cursor.range();
    if (!group_.put(way.to, seq_, range.first * seats_.element_bytes(), number,
                    payload_of(way, range), loans.of(way.to, way.put)))
      break;
    Puts& puts = is_own ? way.own : way.passed_on;
    puts.place[puts.count++ % Loans::kAhead] = way.put++;
    way.cursor.next();
    moved = true;
  }
  return moved;
}

bool RingOperation::place(Placing& came, const Forward& way, bool& has_computed) {
  bool moved = false;
  while (!has_computed && !came.cursor.at_end() && region_.has(number_of(came.cursor))) {
    const ElementRange range = came.cursor.range();
    const std::uint64_t bytes = seats_.bytes_of_result(range.size());
    const bool is_coded = seats_.codes_result(range.size()), goes_on = came.cursor.is_sent_on();
    // What it decodes to takes its place.
    if (is_coded && goes_on && !has_left(way, way.passed_on, came.sent_on)) break;
    group_.notes().arrived(bytes);
    if (is_coded) {
      seats_.spread_coded_in_place(range.first, range.last, group_.scratch());
      has_computed = true;
    } else if (seats_.has_others()) {
      seats_.spread(range.first, range.last);
      has_computed = true;
    }
    came.sent_on += goes_on ? 1 : 0;
    came.cursor.next();
    moved = true;
  }
  return moved;
}

bool RingOperation::is_done() const {
  return sums_out_.at_end() && sums_in_.at_end() && right_.cursor.at_end() &&
         left_.cursor.at_end() && from_left_.cursor.at_end() && from_right_.cursor.at_end();
}

bool RingOperation::let_go() {
  const bool is_removed = region_.end();
  return is_removed && group_.partials().are_back() && group_.results().are_back();
}

}  // namespace arcomm
