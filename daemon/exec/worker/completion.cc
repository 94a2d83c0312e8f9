#include "daemon/exec/worker/completion.h"

#include <algorithm>
#include <cstring>

#include "daemon/telemetry/log/log.h"
#include "proto/ring/layout.h"
#include "proto/text.h"

namespace arcomm {
namespace {

// Says first what was left out before.
bool may_log(Session& session, std::uint64_t now_ns) {
  const std::optional<std::uint64_t> left_out = session.failure_lines.spend(now_ns);
  if (left_out > 0u) log_left_out(session, *left_out);
  return left_out && log::admits(log::About::Operations, session.origin().uid);
}

ring::Completion completion_of(std::uint64_t ticket, std::uint64_t seq, const Failure& outcome,
                               std::uint64_t elapsed_ns) {
  ring::Completion completion;
  completion.ticket = ticket;
  completion.seq = seq;
  completion.code = static_cast<std::uint8_t>(outcome.code);
  completion.reason = static_cast<std::uint8_t>(outcome.reason);
  completion.stage = ring::Stage::Done;
  completion.culprit_rank = outcome.culprit;
  completion.elapsed_ns = elapsed_ns;
  if (!outcome.ok()) {
    const std::string_view text = cut_text(outcome.message(), sizeof(completion.detail) - 1);
    std::memcpy(completion.detail, text.data(), text.size());
  }
  return completion;
}

}  // namespace

bool CompletionSink::finish(Operation& operation, std::uint64_t now_ns) {
  if (operation.send_buffer.valid()) buffers_.drop(operation.send_buffer);
  if (operation.recv_buffer.valid()) buffers_.drop(operation.recv_buffer);
  const Failure& outcome = operation.outcome;
  const std::uint64_t elapsed_ns =
      now_ns > operation.admitted_ns ? now_ns - operation.admitted_ns : 0;
  Session& session = *operation.session;
  session.discharge();
  ++(outcome.ok() ? session.completed : session.failed);
  ++(outcome.ok() ? done_ : failed_);
  if (outcome.ok()) bytes_reduced_ += operation.signature.send_bytes();
  bool told = true;
  if (session.readable() && !operation.by_doorbell)
    told = session.complete(completion_of(operation.ticket, operation.seq, outcome, elapsed_ns));
  operation.record.code = outcome.code;
  operation.record.reason = outcome.reason;
  operation.record.culprit = outcome.culprit;
  operation.record.done_ns = now_ns;
  recorder_.write(operation.record);
  if (!outcome.ok() && may_log(session, now_ns)) {
    log::info("seq {} of rank {} (pid {}) failed: {} ({})", operation.seq, operation.rank,
              session.origin().pid, outcome.message(), name_of(outcome.reason));
  }
  metrics_.count_operation(outcome.code, elapsed_ns, operation.signature.send_bytes());
  if (operation.signature.codec != Codec::None) metrics_.coded[operation.signature.codec].add();
  if (operation.signature.codec_origin == CodecOrigin::ErrorClass)
    metrics_.of_error_class[operation.signature.codec].add();
  metrics_.operations_in_flight.add(-1);
  operations_.give(&operation);
  return told;
}

bool CompletionSink::refuse(Session& session, const ring::WorkRequest& slot,
                            const Admitted& refused, std::uint64_t now_ns) {
  note_refusal(session, slot, refused, now_ns);
  const bool told =
      session.complete(completion_of(refused.ticket, refused.seq, refused.failure, 0));
  if (told) session.wake();
  return told;
}

bool CompletionSink::answer_plan(Session& session, std::uint64_t ticket,
                                 const Result<PlanId>& answer) {
  const Failure outcome = answer ? Failure{} : Failure::from(answer.error());
  const bool told =
      session.complete(completion_of(ticket, answer ? answer->bits() : 0, outcome, 0));
  if (told) session.wake();
  return told;
}

void CompletionSink::refuse_doorbell(Session& session, const Admitted& refused,
                                     std::uint64_t now_ns) {
  note_refusal(session, ring::WorkRequest{}, refused, now_ns);
}

void CompletionSink::note_refusal(Session& session, const ring::WorkRequest& slot,
                                  const Admitted& refused, std::uint64_t now_ns) {
  const Failure& failure = refused.failure;
  ++session.rejected;
  metrics_.count_rejected(failure.reason);
  if (may_log(session, now_ns)) {
    log::info("session {} (pid {}): request refused: {} ({})", fmt::streamed(session.id()),
              session.origin().pid, failure.message(), name_of(failure.reason));
  }
  if (const Member* member = refused.member) {
    const Communicator& communicator = *member->communicator;
    FlightRecord record{.unique_id_prefix = prefix_of(communicator.unique_id),
                        .epoch = communicator.epoch,
                        .seq = refused.seq,
                        .send_count = slot.send_count,  // as asked
                        .recv_count = slot.recv_count,
                        .submitted_ns = slot.submitted_ns,
                        .admitted_ns = now_ns,
                        .done_ns = now_ns,
                        .rank = member->rank,
                        .culprit = failure.culprit,
                        .pid = session.origin().pid,
                        .code = failure.code,
                        .reason = failure.reason};
    if (slot.collective < kCollectives)
      record.collective = static_cast<Collective>(slot.collective);
    if (slot.dtype < kDTypes) record.dtype = static_cast<DType>(slot.dtype);
    if (slot.op < kReduceOps) record.op = static_cast<ReduceOp>(slot.op);
    if (const Codec codec = codec_in(slot.codec); static_cast<unsigned>(codec) < kCodecs)
      record.codec = codec;
    record.codec_origin = codec_origin_in(slot.codec);
    recorder_.write(record);
  }
}

void log_left_out(const Session& session, std::uint64_t failures) {
  log::info("session {} (pid {}): {} more failed or refused operations were not logged",
            fmt::streamed(session.id()), session.origin().pid, failures);
}

}  // namespace arcomm
