// How a thread waits for operations: it works for everyone while it does. First it spins, if the
// machine has cores to spare; then it yields between looks, for as long as a small operation may
// take, because waking an idle core costs about 40 us and a yield about one; then it sleeps on the
// completion ring. It sleeps at once while other processes use its core (LostTime): a thread that
// yields to them gets its core back a time slice later.
// Thread: any. Time: every wait ends at its deadline, with false.
#pragma once

#include <cstdint>

#include "client/src/host/member.h"
#include "client/src/host/operation.h"
#include "client/src/host/rings/submission.h"
#include "client/src/session/deadline.h"
#include "transport/device/lost_time.h"

namespace arcomm::client {

class Waiting {
 public:
  // submission: outlives this.
  explicit Waiting(Submission& submission) : submission_(submission) {}

  // Until the operation is done.
  bool wait_for(const Operation& operation, Deadline deadline);
  // Until it is answered, or the session lost.
  bool wait_for(const Question& question, Deadline deadline);
  // Until no operation of the member is open.
  bool wait_until_idle(const Member& member, Deadline deadline);
  // Until few operations of the member have still to leave.
  bool wait_for_room(const Member& member, Deadline deadline);

 private:
  template <typename Finished>
  bool wait_while_working(std::uint64_t bytes, Deadline deadline, Finished finished);

  Submission& submission_;
  LostTime lost_time_;  // of all threads that wait here
};

}  // namespace arcomm::client
