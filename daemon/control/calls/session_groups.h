// The control groups that a session's process is in, looked at before the daemon first has memory
// of the host for it. They are those of the process that attached: the session ends with it, so
// that its number is nobody else's. Thread: the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/control/descriptors/fair_prefault.h"
#include "daemon/control/session_ledger.h"
#include "proto/status.h"
#include "transport/device/memory_groups.h"

namespace arcomm {

class SessionGroups {
 public:
  SessionGroups(SessionLedger& ledger, FairPrefault& memory_work)
      : ledger_(ledger), memory_work_(memory_work) {}

  // Heard at once where they are known, else once the memory thread has looked: exactly once. The
  // pointer is the session's, for as long as the function runs.
  using Then = std::function<void(Result<const std::vector<MemoryGroup>*>)>;
  void look(SessionId session, std::uint64_t call, const Then& then);
  // The caller (Caller::call) no longer listens.
  void cancel(std::uint64_t call);

 private:
  SessionLedger& ledger_;
  FairPrefault& memory_work_;
};

}  // namespace arcomm
