// An AllReduce of device memory from the checked call to its start on the stream. Thread: any.
#pragma once

#include <chrono>
#include <memory>

#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/host/member.h"
#include "client/src/host/operation.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"

namespace arcomm::client {

struct GpuOperands {
  GpuBuffer send, recv;
};

// Where both sides lie, registered where need be; nowhere where nothing is moved.
Result<GpuOperands> find_operands(const Member& member, const CollectiveCall& call,
                                  Deadline deadline);

// `attempt`, which finds the operands and asks the daemon for a plan on them, once more where the
// daemon does not know them: between the two steps another thread, or the finding of the second
// side, may have given back the run of chunks that was found for one.
template <typename Attempt>
auto with_second_attempt(const Attempt& attempt) {
  auto done = attempt();
  if (done || done.error().reason != Reason::UnknownHandle) return done;
  return attempt();
}

// Stream-ordered; returns at once, but for the first use of a buffer or of a combination of them
// that is not in-stream.
Status all_reduce_on_gpu(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                         void* stream, std::chrono::milliseconds timeout);

}  // namespace arcomm::client
