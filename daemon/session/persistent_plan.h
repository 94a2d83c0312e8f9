// An operation whose buffers, extents and types were checked once; each start is only a
// ticket and a seq. Thread: the worker's. It holds its buffers: they cannot be released before it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/memory/id_table.h"
#include "daemon/plan/operation.h"
#include "proto/types.h"

namespace arcomm {

struct PersistentPlan {
  SessionId owner;
  MemberId member;
  BufferId send_buffer, recv_buffer;  // invalid where it moves nothing
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  Signature signature;
  std::uint64_t timeout_ns = 0;
  int resident_on = -1;  // GPU workers: where its starts are taken by the resident grid
};

using PlanTable = IdTable<PersistentPlan, PlanId>;

}  // namespace arcomm
