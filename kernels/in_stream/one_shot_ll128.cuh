// As all_reduce/one_shot_ll128.cu, between more than two ranks, for at most one packet per warp.
#pragma once

#include "kernels/in_stream/own_packets.cuh"

namespace arcomm::device {

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ void one_shot_ll128(const InStreamCall& call) {
  __shared__ BlockState state;
  const OwnPackets<Format> packets(call);
  LaneData mine{}, out{};
  BlockEpoch epoch(call, state);
  const bool moves = packets.exists(0);
  if (moves) mine = packets.read(0);
  if (!epoch.begins()) return epoch.leave();
  if (epoch.is_watcher()) epoch.agree();
  InStreamBudget budget({call, state});
  if (moves) {
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop)
      store_packet(packets.place(epoch, peer_of(call, hop), call.rank, 0), mine, epoch.flag());
    reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return packets.place(epoch, call.rank, rank, 0); },
        epoch.flag(), budget, out);
  }
  const bool agree = epoch.all_agree();
  epoch.trigger_dependents();
  if (agree && moves) packets.write(0, out);
  epoch.leave();
}

}  // namespace arcomm::device
