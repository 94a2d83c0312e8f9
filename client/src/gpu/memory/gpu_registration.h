// How the daemon hears of a session's GPU memory, and when it lets it go: what GpuBuffers and
// GpuSegments ask of it. Thread: any.
#pragma once

#include "client/cuda/gpu.h"
#include "client/src/control/fd_channel.h"
#include "client/src/control/node_control.h"
#include "client/src/gpu/gpu_members.h"
#include "client/src/gpu/memory/gpu_buffers.h"
#include "client/src/gpu/plans_at_daemon.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class GpuRegistration {
 public:
  // All outlive it, and it what it returns.
  GpuRegistration(NodeControl& control, FdChannel& descriptors, const Attached& attached,
                  const GpuMembers& members, PlansAtDaemon& plans)
      : control_(control),
        descriptors_(descriptors),
        attached_(attached),
        members_(members),
        plans_(plans) {}
  GpuRegistration(const GpuRegistration&) = delete;
  GpuRegistration& operator=(const GpuRegistration&) = delete;

  GpuBuffers::Daemon of_buffers();
  GpuSegments::Daemon of_chunks();

 private:
  Result<BufferId> add(Gpu& gpu, const GpuRange& range, Deadline deadline);
  Result<BufferId> add_chunks(Gpu& gpu, const GpuChunks& chunks, Deadline deadline);
  Status remove(BufferId buffer, Deadline deadline);
  Result<bool> remove_if_unneeded(BufferId buffer, const IsThere& is_there, Deadline deadline);
  Status release(BufferId buffer, Deadline deadline);

  NodeControl& control_;
  FdChannel& descriptors_;
  const Attached& attached_;
  const GpuMembers& members_;
  PlansAtDaemon& plans_;
};

}  // namespace arcomm::client
