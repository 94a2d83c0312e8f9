// A buffer on its way in: what it has been charged, until its session holds it. Thread: the control
// loop's. Owned by the callbacks of the call that asked for it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/control/calls/charge_with_room.h"
#include "daemon/control/control_state.h"

namespace arcomm {

struct NewBuffer {
  SessionId session;
  BufferSpec spec;
  HeldBuffer held;
  bool give_ticket = false;  // it was promised: SessionLedger::promise_ticket
  Answer<v1::BufferReply> answer;

  // One buffer, its mapping and its bytes, which are reserved where they are the host's. A failure
  // leaves it without any charge.
  enum class Memory : std::uint8_t { Host, Gpu };
  Status charge(QuotaBook& quotas, uid_t uid, std::uint64_t length_bytes, Memory memory);
  // Once the ticket is stored, or never will be.
  void drop_promise(SessionLedger& ledger) const;
  // What it was charged is free again before the client hears of the failure, but where the worker
  // was not in time: it may make the buffer yet, and its answer gives the charge back
  // (remove_late).
  void fail(const Error& why) {
    if (why.code != ErrorCode::DeadlineExceeded) held = {};
    answer(why);
  }
};

// Of what NewBuffer::charge() charges.
std::vector<Demand> demands_of(const QuotaBook& quotas, std::uint64_t length_bytes,
                               NewBuffer::Memory memory);

// Has the session's worker map it, then gives it to the session and answers. `memory` may be empty
// where the spec names the memory otherwise.
void add_to_worker(ControlState& state, const std::shared_ptr<NewBuffer>& buffer,
                   const std::shared_ptr<UniqueFd>& memory);

// Of a worker that made it after its caller had been told that it did not: charged for until it has
// gone.
void remove_late(ControlState& state, DeviceWorker& worker,
                 const std::shared_ptr<NewBuffer>& buffer, BufferId made);

}  // namespace arcomm
