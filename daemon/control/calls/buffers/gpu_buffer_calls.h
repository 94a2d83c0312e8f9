// Memory of GPUs: allocated by the worker, or registered by an offered descriptor, an IPC handle or
// in pieces. Checks the request, charges it and hands it to the worker; BufferCalls has found the
// session and releases what this gave. Thread: the control loop.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/control/calls/buffers/new_buffer.h"
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
  // Once it is charged for.
  void allocate(const std::shared_ptr<NewBuffer>& buffer, AllocationSpec wanted);
  // Once it is there.
  void give(const std::shared_ptr<NewBuffer>& buffer, const std::string& gpu, BufferId made,
            std::uint64_t length_bytes, const std::shared_ptr<UniqueFd>& memory);

  ControlState& state_;
};

}  // namespace arcomm
