#include "daemon/telemetry/kept_recorders.h"

#include <string>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

const std::string kRecorderName = "recorder";  // in systemd's descriptor store, with a number

}  // namespace

void KeptRecorders::take_previous(std::vector<InheritedSocket>& passed) {
  std::erase_if(passed, [this](const InheritedSocket& one) {
    if (!one.name.starts_with(kRecorderName)) return false;
    Result<FlightLog> log = FlightRecorder::read(one.fd.get());
    if (log) {
      log::info("{} operations of the previous daemon were kept: arctl trace --previous",
                log->operations.size());
      previous_.append(*log);
    } else {
      log::info("the previous daemon's {} is not shown: {}", one.name, log.error().message);
      service_.unstore(one.name);
    }
    return true;
  });
}

void KeptRecorders::keep(std::size_t worker, const FlightRecorder& recorder) {
  const std::string name = kRecorderName + std::to_string(worker);
  service_.unstore(name);
  service_.store(recorder.memfd(), name);
}

}  // namespace arcomm
