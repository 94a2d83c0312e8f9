// What concerns the daemon as a whole, and so is done above control. Thread: any; calls may come at
// the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/telemetry/flight_recorder.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/status.h"

namespace arcomm {

namespace v1 = arcommd::v1;

class DaemonActions {
 public:
  virtual ~DaemonActions() = default;
  // Fills what NodeAdmin cannot know: version, pid, uptime, backend, configuration, tuning,
  // settings, warnings.
  virtual void describe(v1::StatusReply& status) = 0;
  virtual Result<v1::ReloadReply> reload() = 0;  // blocks for a file's reading
  // Blocks for the whole measurement; gives up soon after cancelled() turns true. The last message
  // it sends has `finished` set.
  virtual Status tune(const v1::TuneRequest& request,
                      const std::function<void(v1::TuneReply)>& send,
                      const std::function<bool()>& cancelled) = 0;
  virtual std::string algorithm_name(
      std::uint8_t algorithm) = 0;  // as the flight recorder numbers them
  virtual Result<v1::ExplainReply> explain(const v1::ExplainRequest& request) = 0;
  // What the daemon before this one did last; empty where nobody kept it.
  virtual const FlightLog& previous_operations() const = 0;
};

}  // namespace arcomm
