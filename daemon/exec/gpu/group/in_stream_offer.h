// How many SMs of its GPUs (daemon/plan/in_stream_share.h) a communicator that is being formed may
// fill with in-stream operations, and what stands in the way of more. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/gpu/group/peer_lines.h"
#include "daemon/exec/specs.h"

namespace arcomm {

struct InStreamOffer {
  std::uint32_t blocks = 0;  // 0: nothing is in-stream
  bool tiny = false;         // of the tiny shares
  std::string why_not;       // or not all that could be; "" where nothing hinders: for people
};

// Every rank's process must be able to map every rank's memory, and every GPU have room for the
// blocks of one communicator more. others: those that exist. communicators: how many of one GPU are
// meant to have a share.
InStreamOffer offer_in_stream(const GpuGroup& group, const CommunicatorSpec& spec,
                              std::span<GpuGroup* const> others, const PeerLines& lines,
                              std::uint32_t communicators);

}  // namespace arcomm
