// The last step of an operation: its memory is let go, its client is told, and it is counted and
// recorded. Thread: the worker's. Allocates only for the log line of a failure; one system call
// where the client sleeps.
#pragma once

#include <cstdint>

#include "daemon/memory/buffer_registry.h"
#include "daemon/memory/pool.h"
#include "daemon/plan/operation.h"
#include "daemon/session/admission.h"
#include "daemon/session/session.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

// Failures beyond the session's lines of a second.
void log_left_out(const Session& session, std::uint64_t failures);

class CompletionSink {
 public:
  CompletionSink(BufferRegistry& buffers, Pool<Operation>& operations, FlightRecorder& recorder,
                 Metrics& metrics)
      : buffers_(buffers), operations_(operations), recorder_(recorder), metrics_(metrics) {}

  // Ends the operation with its outcome and gives it back; its client is to be woken by the caller.
  // False when its session broke the completion ring.
  bool finish(Operation& operation, std::uint64_t now_ns);
  // Counts, records and answers a request that never became an operation.
  bool refuse(Session& session, const ring::WorkRequest& slot, const Admitted& refused,
              std::uint64_t now_ns);
  // Answers a request with kPlanMagic.
  bool answer_plan(Session& session, std::uint64_t ticket, const Result<PlanId>& answer);
  // The same as refuse() for the start of a plan through a doorbell, whose client hears of it in
  // its mailbox.
  void refuse_doorbell(Session& session, const Admitted& refused, std::uint64_t now_ns);

  std::uint64_t done() const { return done_; }
  std::uint64_t failed() const { return failed_; }
  // Of this worker alone; the metric adds up all workers.
  std::uint64_t bytes_reduced() const { return bytes_reduced_; }

 private:
  void note_refusal(Session& session, const ring::WorkRequest& slot, const Admitted& refused,
                    std::uint64_t now_ns);

  BufferRegistry& buffers_;
  Pool<Operation>& operations_;
  FlightRecorder& recorder_;
  Metrics& metrics_;
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t bytes_reduced_ = 0;
};

}  // namespace arcomm
