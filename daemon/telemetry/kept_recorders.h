// Flight recorders that outlive their daemon: systemd keeps their memory, and the next daemon shows
// what the one before it did last. Thread: the daemon's main thread; previous() on any once
// take_previous() is through. Without systemd nothing happens.
#pragma once

#include <cstddef>
#include <vector>

#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/sd_notify.h"

namespace arcomm {

class KeptRecorders {
 public:
  explicit KeptRecorders(ServiceManager& service) : service_(service) {}

  // Takes the recorders out of what systemd passed and reads them.
  void take_previous(std::vector<InheritedSocket>& passed);
  // In the place of what the dead daemon left, which had better stay there for as long as its
  // successor does not serve. worker: its index.
  void keep(std::size_t worker, const FlightRecorder& recorder);

  // Empty where nobody kept any.
  const FlightLog& previous() const { return previous_; }

 private:
  ServiceManager& service_;
  FlightLog previous_;
};

}  // namespace arcomm
