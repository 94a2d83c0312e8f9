#include "daemon/exec/completion.h"

#include <algorithm>
#include <cstring>

#include "proto/ring/layout.h"

namespace arcomm {
namespace {

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
    const std::string_view text = outcome.message();
    std::memcpy(completion.detail, text.data(),
                std::min(text.size(), sizeof(completion.detail) - 1));
  }
  return completion;
}

}  // namespace

bool CompletionSink::finish(Operation& operation, std::uint64_t now_ns) {
  if (operation.send_buffer.valid()) {
    buffers_.drop(operation.send_buffer);
    buffers_.drop(operation.recv_buffer);
  }
  const Failure& outcome = operation.outcome;
  const std::uint64_t elapsed_ns =
      now_ns > operation.admitted_ns ? now_ns - operation.admitted_ns : 0;
  Session& session = *operation.session;
  session.discharge();
  ++(outcome.ok() ? session.completed : session.failed);
  ++(outcome.ok() ? done_ : failed_);
  bool told = true;
  if (session.readable())
    told = session.complete(completion_of(operation.ticket, operation.seq, outcome, elapsed_ns));
  operation.record.code = outcome.code;
  operation.record.reason = outcome.reason;
  operation.record.culprit = outcome.culprit;
  operation.record.done_ns = now_ns;
  recorder_.write(operation.record);
  metrics_.count_operation(outcome.code, elapsed_ns, operation.signature.bytes());
  metrics_.operations_in_flight.add(-1);
  operations_.give(&operation);
  return told;
}

bool CompletionSink::refuse(Session& session, std::uint64_t ticket, std::uint64_t seq,
                            const Failure& failure) {
  ++session.rejected;
  metrics_.count_rejected(failure.reason);
  return session.complete(completion_of(ticket, seq, failure, 0));
}

}  // namespace arcomm
