// An operation from the checked call to its result: takes what it needs, submits, waits. Thread:
// any.
#pragma once

#include <cstdint>
#include <memory>

#include "client/src/host/member.h"
#include "client/src/host/operation.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"

namespace arcomm::client {

// Who tells the daemon of a member that gave up: the call that made it give up, before it returns,
// or that call's group, once for all of its operations.
enum class Teller : std::uint8_t { Call, Group };

// Holds everything the operation needs; its ticket is valid. `plan` may be invalid.
Result<Operation*> prepare(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                           PlanId plan, Deadline deadline);
// Hands it to the daemon; what its group has been preparing for does not count against `deadline`.
// A refusal ends the operation with that error.
void start(Operation& operation, Deadline deadline, Teller teller = Teller::Call);
// Waits for the operation's own end and spends the ticket.
Status finish(Operation& operation, Teller teller = Teller::Call);

// For tickets in the caller's hands.
Status test_ticket(std::uint64_t ticket, bool* in_progress);
Status wait_ticket(std::uint64_t ticket, std::uint64_t timeout_ms);

// Of this thread: the number of the operation with which the last of the three above failed.
// Whoever asks sets it to kNoSeq before.
std::uint64_t& failed_seq();

}  // namespace arcomm::client
