// How a session ends: what the daemon said in the segment's state or in a completion, or that its
// socket hung up, turns into the error that every open operation and every later call gets.
#include <utility>

#include "client/src/host/submission.h"

namespace arcomm::client {

void Submission::lose(const Error& why) {
  if (loss_) return;
  loss_ = why;
  lost_.store(true, std::memory_order_release);
  for (InFlight& entry : in_flight_) {
    Operation* operation = std::exchange(entry.operation, nullptr);
    if (operation == nullptr) continue;
    --entry.member->in_flight;
    --operation->outstanding;
    fail(*operation, why, kNoSeq);
  }
  for (Member* member : members_) {
    set_failure(*member, why);
    pump(*member);  // fails what has not left yet
  }
}

Error Submission::loss() const {
  const Lock lock(mutex_);
  return loss_.value_or(Error{ErrorCode::Ok, Reason::None, "", -1});
}

// A daemon that lets go of the session has pushed every completion before it says so: reap first.
void Submission::look_at_state() {
  if (loss_) return;
  const ring::ControlLines& control = segment_.control();
  const auto state =
      static_cast<ring::SessionState>(control.session_state.load(std::memory_order_acquire));
  if (state == ring::SessionState::Open || state == ring::SessionState::ShuttingDown) return;
  reap();
  const Reason said = reason_from(control.session_reason.load(std::memory_order_relaxed));
  if (state == ring::SessionState::Quarantined) {
    lose(error(ErrorCode::Unavailable, Reason::Quarantined,
               "the daemon shut this session out because its ring broke the protocol (",
               text_of(said), "): something in this process wrote into the shared segment"));
  } else {
    lose(error(ErrorCode::Unavailable, Reason::DaemonLost, "the daemon closed this session (",
               text_of(said), "): create the communicator again"));
  }
}

void Submission::check() {
  if (lost() || !descriptors_.hung_up()) return;
  {
    const Lock lock(mutex_);
    reap();
    look_at_state();
    lose(error(ErrorCode::Unavailable, Reason::DaemonLost,
               "the daemon is gone: create the communicator again once it is back"));
  }
  wake_others();
}

void Submission::close(const Error& why) {
  {
    const Lock lock(mutex_);
    reap();
    lose(why);
  }
  wake_others();
}

}  // namespace arcomm::client
