#include "daemon/control/calls/session_groups.h"

#include <utility>

namespace arcomm {

void SessionGroups::look(SessionId session, std::uint64_t call, const Then& then) {
  SessionEntry* const entry = ledger_.find(session);
  if (entry == nullptr) {
    return then(error(ErrorCode::Aborted, Reason::RemoteDied, "session ", session, " has ended"));
  }
  if (entry->memory_groups) return then(&*entry->memory_groups);
  memory_work_.look_at_groups({session, call}, entry->peer.pid,
                              [this, session, call, then](Result<std::vector<MemoryGroup>> groups) {
                                if (!groups) return then(groups.error());
                                if (SessionEntry* still = ledger_.find(session); still != nullptr)
                                  still->memory_groups = std::move(groups).value();
                                look(session, call, then);
                              });
}

void SessionGroups::cancel(std::uint64_t call) {
  memory_work_.drop_call(call, error(ErrorCode::Cancelled, Reason::None,
                                     "the caller went away before its control groups were known"));
}

}  // namespace arcomm
