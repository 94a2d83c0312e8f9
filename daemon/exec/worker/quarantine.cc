#include "daemon/exec/worker/quarantine.h"

#include <algorithm>

#include "daemon/telemetry/log/log.h"

namespace arcomm {

void Quarantine::mark(Session& session, const char* why) {
  const bool known = std::any_of(marked_.begin(), marked_.end(),
                                 [&](const auto& marked) { return marked.first == &session; });
  if (!known && session.readable()) marked_.emplace_back(&session, why);
}

void Quarantine::impose() {
  for (const auto& [session, why] : std::exchange(marked_, {})) {
    log::warn_of(log::About::Sessions, session->origin().uid,
                 "session {} (pid {}) broke the ring protocol and is quarantined: {}",
                 fmt::streamed(session->id()), session->origin().pid, why);
    session->set_state(ring::SessionState::Quarantined, Reason::Quarantined);
    departures_.drop_members(*session, Reason::Quarantined, why);
    if (state_.parts.events.session_lost)
      state_.parts.events.session_lost(session->id(), Reason::Quarantined, why);
  }
}

}  // namespace arcomm
