// Rings that outlive their daemon: systemd keeps each session's segment, and the next daemon ends
// in it what the dead one left, so that a client is told by its own rings. Nothing is replayed.
// Thread: keep() and release() on the control loop, end_previous() on the main thread before that
// loop runs. Without systemd nothing happens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/telemetry/metrics/metrics.h"
#include "daemon/telemetry/sd_notify.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm {

class KeptRings {
 public:
  KeptRings(ServiceManager& service, Metrics& metrics) : service_(service), metrics_(metrics) {}

  // One datagram each, which is dropped where it would have to wait: then the client of a daemon
  // that dies learns of it by its socket alone. The same where the store is full.
  void keep(SessionId session, int segment_fd);
  void release(SessionId session);

  // Takes the segments out of what systemd passed, ends each and drops it from the store.
  void end_previous(std::vector<InheritedSocket>& passed);

 private:
  ServiceManager& service_;
  Metrics& metrics_;
};

std::string store_name_of(SessionId session);  // "rings-0000002a00000007"

struct EndedRings {
  bool was_open = false;  // the dead daemon had not said that it let go of the session
  bool in_order = false;  // false: stamps or indices make no sense, and only the state was written
  std::uint64_t operations = 0;  // requests that had no completion
  std::uint64_t unread = 0;      // those among them that were answered here: nobody had read them
};

// Answers what nobody read, says that the session is closed, and wakes its client. The segment is a
// stranger's to write: at most one turn of each ring is looked at, whatever is in it.
Result<EndedRings> end_rings(UniqueFd segment);

}  // namespace arcomm
