// Memory of GPUs: allocated by the worker, or registered by an offered descriptor, an IPC handle or
// in pieces. Checks the request, charges it and hands it to the worker; BufferCalls has found the
// session and releases what this gave. Thread: the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/control/calls/new_buffer.h"
#include "daemon/control/control_state.h"

namespace arcomm {

class GpuBufferCalls {
 public:
  explicit GpuBufferCalls(ControlState& state) : state_(state) {}

  // waits_until_ns: Caller's.
  void allocate_buffer(SessionEntry& session, const v1::AllocateBufferRequest& request,
                       std::uint64_t waits_until_ns, Answer<v1::BufferReply> answer);
  // Takes all that was offered for it, refused or not.
  void register_buffer(SessionEntry& session, const v1::RegisterBufferRequest& request,
                       std::uint64_t waits_until_ns, Answer<v1::BufferReply> answer);

 private:
  // So much of it is to be charged.
  struct Demand {
    const FairShare& of;
    std::uint64_t amount;
  };
  std::vector<Demand> demands_of(std::uint64_t bytes) const;
  // Where there is no room, what was released may still be charged for at the worker, though
  // nothing but its next quiescing is waited for: it is asked to let go of that before `charge` is
  // called. then: in the same task of the loop, while the session is there; or why nothing was
  // charged.
  void charge_with_room(const SessionEntry& session, std::uint64_t waits_until_ns,
                        const std::vector<Demand>& demands, std::function<Status()> charge,
                        std::function<void(const Status&)> then);
  // Once it is charged for.
  void allocate(const std::shared_ptr<NewBuffer>& buffer, AllocationSpec wanted);
  // Once it is there.
  void give(const std::shared_ptr<NewBuffer>& buffer, const std::string& gpu, BufferId made,
            std::uint64_t length_bytes, const std::shared_ptr<UniqueFd>& memory);

  ControlState& state_;
};

}  // namespace arcomm
