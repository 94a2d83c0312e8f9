#include "client/src/session/session_loss.h"

namespace arcomm::client {

Error SessionLoss::told() const {
  const ring::ControlLines& control = rings_.control();
  const auto state =
      static_cast<ring::SessionState>(control.session_state.load(std::memory_order_acquire));
  const Reason said = reason_from(control.session_reason.load(std::memory_order_relaxed));
  if (state == ring::SessionState::Quarantined) {
    return error(ErrorCode::Unavailable, Reason::Quarantined,
                 "the daemon shut this session out because its ring broke the protocol (",
                 text_of(said), "): something in this process wrote into the shared segment");
  }
  return error(ErrorCode::Unavailable, Reason::DaemonLost, "the daemon closed this session (",
               text_of(said), "): create the communicator again");
}

void SessionLoss::lose(const Error& why) {
  if (why_) return;
  why_ = why;
  lost_.store(true, std::memory_order_release);
  // First, so that no operation that fails here has its member aborted at the daemon.
  for (Member* member : requests_.members()) member->fail(why);
  rings_.take_each([&](const SessionRings::InFlight& taken) { ends_.fail(*taken.operation, why); });
  for (Member* member : requests_.members()) {
    static_cast<void>(requests_.pump(*member));  // sends nothing: fails what has not left yet
  }
}

}  // namespace arcomm::client
