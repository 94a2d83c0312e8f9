// one_shot_ll128 between two, where one hop carries no more than two would, so that it serves
// longer operations than its areas hold (proto/exchange.h, kInStreamAhead).
#pragma once

#include "kernels/in_stream/own_packets.cuh"

namespace arcomm::device {

// What a warp pushes next it has read one packet before.
template <typename Format, ReduceOp kOp>
__device__ __forceinline__ void pair_ll128(const InStreamCall& call) {
  constexpr std::uint32_t kAhead = kInStreamAhead;
  __shared__ BlockState state;
  const OwnPackets<Format> packets(call);
  LaneData mine[kAhead], next{};
  BlockEpoch epoch(call, state);
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (packets.exists(i)) mine[i] = packets.read(i);
  }
  if (packets.exists(kAhead)) next = packets.read(kAhead);
  if (!epoch.begins()) return epoch.leave();
  if (epoch.is_watcher()) epoch.agree();
  const std::uint32_t peer = 1 - call.rank;
  const auto flag = [&](std::uint32_t i) { return epoch.flag_of_lap(i / kInStreamSlots); };
  const auto push = [&](std::uint32_t i, const LaneData& data) {
    store_packet(packets.place(epoch, peer, call.rank, i % kInStreamSlots), data, flag(i));
  };
  const auto slot = [&](std::uint32_t i) {
    return packets.place(epoch, call.rank, peer, i % kInStreamSlots);
  };
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (packets.exists(i)) push(i, mine[i]);
  }
  InStreamBudget budget({call, state});
  Lines theirs;
  bool received = packets.exists(0) && receive_packet(theirs, slot(0), peer, flag(0), budget);
  received = epoch.all_agree() && received;
  if (packets.are_one_each()) epoch.trigger_dependents();
  for (std::uint32_t first = 0; received; first += kAhead) {
#pragma unroll
    for (std::uint32_t j = 0; j < kAhead; ++j) {
      const std::uint32_t i = first + j;
      if (!received) break;
      LaneResult<Format, kOp> result;
      result.combine_next(call.rank == 0 ? mine[j] : theirs.data(), true);
      result.combine_next(call.rank == 0 ? theirs.data() : mine[j], false);
      const bool goes_on = packets.exists(i + 1);
      if (goes_on) theirs.load(slot(i + 1));  // its way is as long as the work on this one
      if (packets.exists(i + kAhead)) {
        mine[j] = next;
        push(i + kAhead, next);
        if (packets.exists(i + kAhead + 1)) next = packets.read(i + kAhead + 1);
      }
      packets.write(i, result.finish(2));
      received = goes_on && (__all_sync(kWarp, theirs.are_of(flag(i + 1))) ||
                             receive_packet(theirs, slot(i + 1), peer, flag(i + 1), budget));
    }
  }
  epoch.leave();
}

}  // namespace arcomm::device
