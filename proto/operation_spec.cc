#include "proto/operation_spec.h"

#include <limits>

namespace arcomm {
namespace {

// Of each collective in turn: what its extents and its root must be.
const char* find_fault_of_extents(const OperationSpec& spec) {
  switch (spec.collective) {
    case Collective::AllReduce:
      if (spec.recv_count != spec.send_count)
        return "an all_reduce receives as many elements as it sends";
      if (spec.root != kNoRank) return "an all_reduce has no root";
      return nullptr;
  }
  return "the collective is unknown: this version knows all_reduce";
}

}  // namespace

const char* find_fault(const OperationSpec& spec) {
  if (static_cast<unsigned>(spec.dtype) >= kDTypes) return "the dtype is unknown";
  if (static_cast<unsigned>(spec.op) >= kReduceOps) return "the reduce operation is unknown";
  if (static_cast<unsigned>(spec.codec) >= kCodecs) return kUnknownCodec;
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / spec.element_bytes();
  if (spec.send_count > most || spec.recv_count > most)
    return "count times the element size overflows 64 bits";
  return find_fault_of_extents(spec);
}

}  // namespace arcomm
