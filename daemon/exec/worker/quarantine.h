// Sessions that broke the ring protocol: their rings are not read again, and their ranks go. A
// verb of the loop only marks them, since a session must not lose its ranks while it is read.
// Thread: the worker's. Allocates only where a session is broken.
#pragma once

#include <utility>
#include <vector>

#include "daemon/exec/worker/departures.h"
#include "daemon/exec/worker/worker_state.h"

namespace arcomm {

class Quarantine {
 public:
  Quarantine(WorkerState& state, Departures& departures) : state_(state), departures_(departures) {}

  // Once, of whatever is said of it; nothing where it is not read any more. why: a literal.
  void mark(Session& session, const char* why);
  bool is_due() const { return !marked_.empty(); }
  // Those that were marked; what their ranks had called has failed, and is to be settled.
  void impose();

 private:
  WorkerState& state_;
  Departures& departures_;
  std::vector<std::pair<Session*, const char*>> marked_;
};

}  // namespace arcomm
