// What the caller of a collective asked for, and what can be wrong with it. No state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/operation_spec.h"
#include "proto/status.h"

namespace arcomm::client {

struct CollectiveCall : OperationSpec {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

// Everything about an AllReduce that can be judged without the daemon.
Status check_call(const void* send, const void* recv, std::uint64_t count, int dtype, int op,
                  const void* stream);
// Of arguments that were checked.
CollectiveCall all_reduce_call(const void* send, void* recv, std::uint64_t count, int dtype,
                               int op);

}  // namespace arcomm::client
