#include "daemon/session/admission.h"

#include <algorithm>
#include <cinttypes>

namespace arcomm {
namespace {

Failure invalid(Reason reason, Rank rank, const char* text) {
  return make_failure(ErrorCode::InvalidArgument, reason, rank, "%s", text);
}

}  // namespace

Member* Admission::find_member(SessionId session, MemberId id) const {
  Member* member = communicators_.find(id);
  if (member == nullptr) return nullptr;
  return member->communicator->seats[member->seat].session == session ? member : nullptr;
}

Failure Admission::check_codec(const Member& member, const Signature& signature) const {
  if (signature.codec == Codec::None) return {};
  const char* codec = text_of(signature.codec).data();  // literals: zero-terminated
  if (!codec_serves(signature.codec, signature.op, signature.dtype)) {
    // Shorter than kServedByCodecs: a completion has room for 88 characters.
    return make_failure(
        ErrorCode::InvalidArgument, Reason::Unsupported, member.rank,
        "codec %s does not serve %s of %s, only sum and avg of 16- and 32-bit floats", codec,
        text_of(signature.op).data(), text_of(signature.dtype).data());
  }
  if (signature.first_element % kCodecBlock != 0)
    return make_failure(ErrorCode::InvalidArgument, Reason::BadValue, member.rank,
                        "codec %s: the part begins within a block of 32 elements", codec);
  return {};
}

Failure Admission::check_ranges(SessionId session, const Signature& signature,
                                const ring::BufferRange& send, const ring::BufferRange& recv,
                                CheckedRange& checked_send, CheckedRange& checked_recv) const {
  // find_fault() has made sure that these do not overflow.
  const std::uint64_t send_bytes = signature.send_bytes(), recv_bytes = signature.recv_bytes();
  const auto check = [&](const char* name, const ring::BufferRange& range, std::uint64_t bytes,
                         CheckedRange& checked) -> Failure {
    if (bytes == 0) return {};
    checked.buffer = buffers_.find(session, range.buffer);
    if (checked.buffer == nullptr) {
      return make_failure(ErrorCode::NotFound, Reason::UnknownHandle, kNoRank,
                          "%s buffer %" PRIu32 ".%" PRIu32
                          " is unknown, freed or of another session",
                          name, range.buffer.index, range.buffer.generation);
    }
    const std::uint64_t length = checked.buffer->length_bytes();
    if (range.offset_bytes > length || bytes > length - range.offset_bytes) {
      return make_failure(ErrorCode::InvalidArgument, Reason::OutOfBounds, kNoRank,
                          "%s range %" PRIu64 " + %" PRIu64 " leaves its buffer of %" PRIu64
                          " bytes",
                          name, range.offset_bytes, bytes, length);
    }
    checked.address = checked.buffer->base() + range.offset_bytes;
    if (reinterpret_cast<std::uintptr_t>(checked.address) % size_of(signature.dtype) != 0) {
      return make_failure(ErrorCode::InvalidArgument, Reason::BadValue, kNoRank,
                          "%s offset %" PRIu64 " is not a multiple of the element's %zu bytes",
                          name, range.offset_bytes, size_of(signature.dtype));
    }
    return {};
  };
  if (Failure failure = check("send", send, send_bytes, checked_send); !failure.ok())
    return failure;
  if (Failure failure = check("recv", recv, recv_bytes, checked_recv); !failure.ok())
    return failure;
  const std::byte* from = checked_send.address;
  const std::byte* to = checked_recv.address;
  if (from != to && from < to + recv_bytes && to < from + send_bytes) {
    return invalid(Reason::BadValue, kNoRank, "send and recv overlap without being equal");
  }
  return {};
}

AdmissionLimits AdmissionLimits::from(const Settings& settings, bool draining) {
  return {.default_timeout_ns = settings.op.default_timeout_ms * 1'000'000,
          .max_timeout_ns = settings.op.max_timeout_ms * 1'000'000,
          .max_in_flight_per_user = settings.quota.in_flight,
          .draining = draining,
          .doorbells_only = false};
}

Admitted Admission::admit(Session& session, const ring::WorkRequest& slot,
                          std::uint64_t now_ns) const {
  Asked asked;
  asked.form = ring::decode(slot, asked.request, asked.detail);
  if (asked.form == ring::Decode::BadMagic) {
    Admitted broken;
    broken.failure = invalid(Reason::Corrupt, kNoRank, asked.detail);
    return broken;
  }
  return check(session, asked, now_ns);
}

Admitted Admission::admit_doorbell(Session& session, MemberId id, Doorbell doorbell,
                                   std::uint64_t now_ns) const {
  Asked asked;
  asked.by_doorbell = true;
  asked.request.ticket = doorbell.number;
  asked.request.member = id;
  if (const Member* member = find_member(session.id(), id))
    asked.request.seq = member->communicator->seats[member->seat].next_seq;
  asked.request.plan = plans_.id_at(doorbell.plan);
  asked.identity = doorbell.identity;
  return check(session, asked, now_ns);
}

Admitted Admission::check(Session& session, const Asked& asked, std::uint64_t now_ns) const {
  const ring::Request& request = asked.request;
  Admitted answer;
  answer.verdict = Admitted::Verdict::Refused;
  answer.ticket = request.ticket;
  answer.seq = request.seq;
  Member* member = find_member(session.id(), request.member);
  if (member == nullptr) {
    answer.failure =
        make_failure(ErrorCode::NotFound, Reason::UnknownHandle, kNoRank,
                     "communicator %" PRIu32 ".%" PRIu32 " is unknown, freed or of another session",
                     request.member.index, request.member.generation);
    return answer;
  }
  const Seat& seat = member->communicator->seats[member->seat];
  if (request.seq != seat.next_seq) {
    answer.failure = make_failure(ErrorCode::InvalidArgument, Reason::BadValue, member->rank,
                                  "rank %d called seq %" PRIu64 " where %" PRIu64 " comes next",
                                  member->rank, request.seq, seat.next_seq);
    answer.member = member;
    answer.out_of_step = true;
    return answer;
  }
  answer.member = member;
  const auto refuse = [&answer, member](Failure failure) {
    failure.culprit = member->rank;
    answer.failure = failure;
    return answer;
  };
  if (asked.form == ring::Decode::BadValue)
    return refuse(invalid(Reason::BadValue, member->rank, asked.detail));
  if (limits.doorbells_only && !asked.by_doorbell) {
    return refuse(make_failure(ErrorCode::Unimplemented, Reason::Unsupported, member->rank,
                               "operations on GPUs start in a stream, not in the ring"));
  }
  if (limits.draining && !communicators_.begun(*member, request.seq)) {
    return refuse(make_failure(ErrorCode::Unavailable, Reason::ShuttingDown, member->rank,
                               "the daemon is shutting down"));
  }
  if (session.in_flight() >= session.max_in_flight()) {
    return refuse(make_failure(ErrorCode::ResourceExhausted, Reason::Quota, member->rank,
                               "%" PRIu32
                               " operations are in flight, the most this session may have",
                               session.in_flight()));
  }
  if (session.user_in_flight() >= limits.max_in_flight_per_user) {
    return refuse(
        make_failure(ErrorCode::ResourceExhausted, Reason::Quota, member->rank,
                     "%" PRIu64 " operations of user %u are in flight: quota.in_flight is %" PRIu64,
                     session.user_in_flight(), static_cast<unsigned>(session.origin().uid),
                     limits.max_in_flight_per_user));
  }

  const bool is_start = asked.by_doorbell || request.plan.valid();
  Signature signature{request.spec, request.total_count, request.first_element};
  CheckedRange send, recv;
  BufferId send_buffer = request.send.buffer, recv_buffer = request.recv.buffer;
  std::uint64_t timeout_ns = request.timeout_ns;
  const std::byte* send_address = nullptr;
  std::byte* recv_address = nullptr;
  if (is_start) {
    const PersistentPlan* plan = plans_.find(request.plan);
    if (plan == nullptr || plan->owner != session.id() || plan->member != request.member) {
      return refuse(make_failure(ErrorCode::NotFound, Reason::UnknownHandle, member->rank,
                                 "plan %" PRIu32 ".%" PRIu32
                                 " is unknown, destroyed or of another communicator",
                                 request.plan.index, request.plan.generation));
    }
    signature = plan->signature;
    send_buffer = plan->send_buffer;
    recv_buffer = plan->recv_buffer;
    send_address = plan->send;
    recv_address = plan->recv;
    if (timeout_ns == 0) timeout_ns = plan->timeout_ns;
  } else {
    Failure failure = check_codec(*member, signature);
    if (!failure.ok()) return refuse(failure);
    failure = check_ranges(session.id(), signature, request.send, request.recv, send, recv);
    if (!failure.ok()) return refuse(failure);
    send_address = send.address;
    recv_address = recv.address;
  }
  if (timeout_ns == 0) timeout_ns = limits.default_timeout_ns;
  timeout_ns = std::min(timeout_ns, limits.max_timeout_ns);
  // The caller waits since it submitted, however long the request lay in the ring. A time in the
  // future is nothing that a sane client writes: it buys no time.
  const std::uint64_t since_ns =
      request.submitted_ns != 0 && request.submitted_ns < now_ns ? request.submitted_ns : now_ns;
  if (now_ns - since_ns > timeout_ns) {
    return refuse(make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, member->rank,
                               "the daemon read the request %" PRIu64
                               " ms after it was made, its timeout is %" PRIu64 " ms",
                               (now_ns - since_ns) / 1'000'000, timeout_ns / 1'000'000));
  }

  Operation* operation = operations_.take();
  operation->ticket = request.ticket;
  operation->seq = request.seq;
  operation->session = &session;
  operation->member = request.member;
  operation->rank = member->rank;
  operation->seat = member->seat;
  operation->signature = signature;
  operation->identity = asked.identity;
  operation->plan = request.plan;
  operation->by_doorbell = asked.by_doorbell;
  operation->send = send_address;
  operation->recv = recv_address;
  operation->send_buffer = signature.send_count == 0 ? BufferId{} : send_buffer;
  operation->recv_buffer = signature.recv_count == 0 ? BufferId{} : recv_buffer;
  operation->admitted_ns = now_ns;
  operation->deadline_ns = since_ns + timeout_ns;
  operation->outcome = Failure{};
  if (operation->send_buffer.valid()) buffers_.hold(send_buffer);
  if (operation->recv_buffer.valid()) buffers_.hold(recv_buffer);
  operation->record = FlightRecord{.unique_id_prefix = prefix_of(member->communicator->unique_id),
                                   .epoch = member->communicator->epoch,
                                   .seq = request.seq,
                                   .send_count = signature.send_count,
                                   .recv_count = signature.recv_count,
                                   .submitted_ns = request.submitted_ns,
                                   .admitted_ns = now_ns,
                                   .rank = member->rank,
                                   .pid = session.origin().pid,
                                   .collective = signature.collective,
                                   .dtype = signature.dtype,
                                   .op = signature.op,
                                   .codec = signature.codec,
                                   .codec_origin = signature.codec_origin};
  session.charge();
  answer.verdict = Admitted::Verdict::Done;
  answer.operation = operation;
  return answer;
}

}  // namespace arcomm
