// The part of a session on GPUs that a session on the host does not have: CUDA, the memory that the
// daemon was told of, the members whose streams must hear when the daemon is gone.
// Thread: any. Ownership: the Session, whose control channel and descriptors it uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cuda/gpu.h"
#include "client/src/control/fd_channel.h"
#include "client/src/control/node_control.h"
#include "client/src/gpu/gpu_members.h"
#include "client/src/gpu/memory/gpu_buffers.h"
#include "client/src/gpu/memory/gpu_registration.h"
#include "client/src/gpu/plans_at_daemon.h"
#include "client/src/gpu/posting/posted_starts.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class GpuSession {
 public:
  struct Parts {  // of its session; all outlive it
    NodeControl& control;
    FdChannel& descriptors;
    const Attached& attached;
    Submission& submission;
    Waiting& waiting;
  };
  static Result<std::unique_ptr<GpuSession>> open(const Parts& parts);

  // The GPU that is current on this thread.
  Result<std::shared_ptr<Gpu>> current() { return gpus_.current(attached_.device); }
  // What this process can use, by UUID.
  std::vector<std::string> visible() { return gpus_.visible(); }
  InStreamHindrance in_stream_hindrance() {
    return modes_.post == PostMode::Memory ? InStreamHindrance::PostsByMemory
                                           : gpus_.in_stream_hindrance();
  }
  GpuBuffers& buffers() { return buffers_; }
  // Maps what the daemon has for the new member.
  Result<std::shared_ptr<GpuMember>> join(std::shared_ptr<Gpu> gpu,
                                          const CreatedCommunicator& created, std::uint32_t rank,
                                          std::uint32_t ranks, Deadline deadline);
  Result<void*> allocate(std::size_t bytes, Deadline deadline);
  // Before the first operation does it.
  Status register_ahead(const void* address, std::size_t bytes, Deadline deadline);

  // Ends what waits on the members' streams.
  void close_members(const Error& why);

 private:
  struct Modes {  // of its operations, as the environment says
    PostMode post;
    Trigger trigger;
  };
  GpuSession(Gpus& gpus, Modes modes, const Parts& parts);

  Gpus& gpus_;
  const Modes modes_;
  NodeControl& control_;
  FdChannel& descriptors_;
  const Attached& attached_;
  GpuMembers members_;
  PlansAtDaemon plans_;
  GpuRegistration registration_;
  GpuBuffers buffers_;
};

}  // namespace arcomm::client
