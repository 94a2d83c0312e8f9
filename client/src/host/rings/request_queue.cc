#include "client/src/host/rings/request_queue.h"

#include <algorithm>

#include "client/src/host/in_call/in_call_path.h"

namespace arcomm::client {
namespace {

std::uint64_t nanoseconds_of(Deadline::Clock::time_point when) {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

ring::WorkRequest request_of(const Operation& operation, const Member& member,
                             std::uint64_t segment, std::uint64_t ticket,
                             Deadline::Clock::time_point now) {
  ring::WorkRequest request;
  const CollectiveCall& call = operation.call;
  request.root = static_cast<std::int16_t>(call.root);
  request.collective = static_cast<std::uint8_t>(call.collective);
  request.dtype = static_cast<std::uint8_t>(call.dtype);
  request.op = static_cast<std::uint8_t>(call.op);
  request.codec = codec_byte_of(call);
  request.ticket = ticket;
  request.member = member.id.bits();
  request.seq = member.next_seq;
  // Only an AllReduce is cut so far, of which a part receives what it sends.
  request.send_count = request.recv_count = operation.cut.elements(segment);
  request.total_count = call.send_count;
  request.first_element = operation.cut.first_element(segment);
  request.plan = operation.plan.bits();
  request.timeout_ns = nanoseconds_of(operation.deadline.when()) - nanoseconds_of(now);
  request.submitted_ns = nanoseconds_of(now);
  if (call.is_empty()) return request;
  const std::uint64_t offset = operation.segment_offset(segment);
  const BufferId staging =
      operation.num_staged > 0 ? operation.staged_for(segment).slot->buffer : BufferId{};
  const SharedRange& send = operation.send;
  const SharedRange& recv = operation.recv;
  request.send_buffer = send.buffer ? send.id.bits() : staging.bits();
  request.send_offset_bytes = send.buffer ? send.offset_bytes + offset : 0;
  request.recv_buffer = recv.buffer ? recv.id.bits() : staging.bits();
  request.recv_offset_bytes = recv.buffer ? recv.offset_bytes + offset : 0;
  return request;
}

}  // namespace

std::uint32_t RequestQueue::share() const {
  const auto members = static_cast<std::uint32_t>(std::max<std::size_t>(members_.size(), 1));
  return std::max(rings_.most_in_flight() / members, 1u);
}

bool RequestQueue::may_leave(const Member& member, const Operation& operation) const {
  // Whoever copies the segment comes back here.
  const bool is_there =
      operation.num_staged == 0 ||
      operation.staged_for(operation.next_submit).state == StagedSegment::State::Filled;
  return is_there && member.in_flight < share() && !rings_.is_full();
}

bool RequestQueue::pump(Member& member) {
  ring::Push sent = ring::Push::Done;
  while (!member.queue.empty() && sent == ring::Push::Done) {
    Operation& operation = *member.queue.front();
    if (operation.failed() || operation.next_submit == operation.cut.segments) {
      member.queue.pop_front();
    } else if (member.failure) {
      ends_.fail(operation, *member.failure);
    } else if (may_leave(member, operation)) {
      sent = send_next(operation, member);
    } else {
      break;
    }
  }
  member.queued.store(member.queue.size(), std::memory_order_relaxed);
  return sent != ring::Push::Corrupt;
}

// Done, too, when the operation's time is up, and it fails instead.
ring::Push RequestQueue::send_next(Operation& operation, Member& member) {
  const std::uint64_t segment = operation.next_submit;
  const auto now = Deadline::Clock::now();
  if (now >= operation.deadline.when()) {
    ends_.fail(operation, error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                                "the deadline passed before segment ", segment, " of ",
                                operation.cut.segments, " could be submitted"));
    return ring::Push::Done;
  }
  const ring::WorkRequest request =
      request_of(operation, member, segment, rings_.next_ticket(), now);
  const ring::Push sent =
      rings_.send(request, {.operation = &operation, .member = &member, .segment = segment});
  if (sent != ring::Push::Done) return sent;
  if (operation.num_staged > 0) {
    StagedSegment& staged = operation.staged_for(segment);
    staged.state = StagedSegment::State::InFlight;
    staged.segment = segment;
  }
  if (segment == 0) operation.outcome.seq = member.next_seq;
  ++member.next_seq;
  ++operation.next_submit;
  if (member.in_call) member.in_call->sent_to_worker();
  return ring::Push::Done;
}

}  // namespace arcomm::client
