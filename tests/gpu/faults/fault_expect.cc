#include "tests/gpu/faults/fault_expect.h"

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

bool is_loss(const Failure& seen) {
  return seen.code == arcUnavailable &&
         (seen.info.reason == arcReasonDaemonLost || seen.info.reason == arcReasonShuttingDown ||
          seen.info.reason == arcReasonNotRunning);
}

bool fits(const Failure& seen, const std::string& kind, int culprit) {
  const arcReason_t reason = seen.info.reason;
  const auto timeout_ms = static_cast<std::int64_t>(options.timeout_ms);
  const bool is_named = seen.info.rank == culprit;
  const bool died = seen.code == arcAborted && reason == arcReasonRemoteDied && is_named;
  const bool is_late = seen.code == arcDeadlineExceeded && reason == arcReasonTimeout && is_named;
  const bool stream_is_well = seen.stream == cudaSuccess;
  if (kind == "daemon-lost")
    return stream_is_well && is_loss(seen) && reason != arcReasonShuttingDown;
  if (kind == "daemon-stops") return stream_is_well && is_loss(seen);
  if (kind == "gpu-lost")
    return is_loss(seen) || seen.code == arcInternal ||
           (!stream_is_well && seen.code != arcSuccess);
  if (kind == "peer-lost") return stream_is_well && died && seen.took.count() < timeout_ms;
  if (kind == "peer-broken") return stream_is_well && (died || is_late);
  if (kind == "peer-late") return stream_is_well && is_late;
  if (kind == "self-late")
    return stream_is_well && (reason == arcReasonTimeout || reason == arcReasonRevoked);
  if (kind == "crossed")
    return stream_is_well && seen.code == arcDeadlineExceeded && reason == arcReasonCrossed;
  if (kind == "self-broken") return !stream_is_well && seen.code != arcSuccess;
  die("nothing is known of failures of the kind " + kind);
}

}  // namespace

void expect(const Failure& failure, const std::string& kind, int culprit) {
  if (fits(failure, kind, culprit)) return;
  die("a failure that should be " + kind +
      (culprit < 0 ? "" : " of rank " + std::to_string(culprit)) + " was, in " + failure.text());
}

}  // namespace arcomm::gpu
