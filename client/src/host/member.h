// One rank of one communicator, in one epoch, as this process drives it.
// Thread: what comes first is set before any other thread sees it; the rest as it says. Ownership:
// shared by the communicator, its plans and its operations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "client/src/host/operation.h"
#include "proto/coding.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class GpuMember;
class InCallPath;
class Session;

struct Member {
  std::shared_ptr<Session> session;
  MemberId id;
  std::uint64_t epoch = 0;
  Rank rank = 0;
  std::uint64_t segment_limit_bytes = 0;  // where operations are cut; the same on every rank
  Coding default_coding;  // of operations that say nothing themselves; the same on every rank
  LaunchTable launches;   // on the host; the GPU's member has its own
  std::shared_ptr<InCallPath> in_call;  // where the table has operations for it; else null
  std::shared_ptr<GpuMember> gpu;       // in a session on GPUs, which uses none of what follows

  // Under the mutex of the session's Submission; what is atomic may be read without it.
  std::uint64_t next_seq = 0;
  std::uint32_t in_flight = 0;
  std::atomic<std::uint64_t> active{0};  // operations submitted and not done
  std::deque<Operation*> queue;        // those with requests still to leave, in the callers' order
  std::atomic<std::size_t> queued{0};  // its length
  std::optional<Error> failure;        // why nothing more may be submitted
  std::atomic<bool> failed{false};     // whether `failure` is set

  // It takes nothing more. The first reason counts.
  void fail(const Error& why) {
    if (failure) return;
    failure = why;
    failed.store(true, std::memory_order_release);
  }
};

}  // namespace arcomm::client
