// one_shot_ll128 between two, where one hop carries no more than two would, so that it serves
// longer operations than its areas hold (proto/exchange.h, kInStreamAhead).
#pragma once

#include "kernels/in_stream/exchange.cuh"

namespace arcomm::device {

// What a warp pushes next it has read one packet before.
template <typename Codec, ReduceOp kOp>
__device__ __forceinline__ void pair_ll128(const InStreamCall& call) {
  using Packet = typename Codec::Packet;
  constexpr std::uint32_t kAhead = kInStreamAhead;
  __shared__ BlockState state;
  const typename Codec::Packets elements({0, call.count}, can_move_vectors(call));
  const auto packets = static_cast<std::uint32_t>(
      (std::uint64_t{call.count} + Codec::kPacketElements - 1) / Codec::kPacketElements);
  // Packet i of this warp, as its block counts and as all do.
  const auto of_block = [](std::uint32_t i) { return threadIdx.x / kLl128Lanes + i * kLl128Warps; };
  const auto number = [&](std::uint32_t i) { return blockIdx.x + of_block(i) * gridDim.x; };
  const auto exists = [&](std::uint32_t i) {
    return threadIdx.x < kInStreamThreads && number(i) < packets;
  };
  const auto read = [&](std::uint32_t i) { return elements.read(call.send, number(i)); };
  Packet mine[kAhead], next{};
  BlockEpoch epoch(call, state);
  epoch.enter();
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (exists(i)) mine[i] = read(i);
  }
  if (exists(kAhead)) next = read(kAhead);
  if (!epoch.begins()) return epoch.leave();
  if (epoch.is_watcher()) epoch.agree();
  const std::uint32_t peer = 1 - call.rank;
  const auto flag = [&](std::uint32_t i) { return epoch.flag_of_lap(i / kInStreamSlots); };
  const auto place = [&](std::uint32_t at, std::uint32_t from, std::uint32_t i) {
    return epoch.packets(at, from) +
           of_block(i % kInStreamSlots) * (kLl128PacketBytes / sizeof(uint4));
  };
  const auto push = [&](std::uint32_t i, const Packet& packet) {
    store_packet(place(peer, call.rank, i), packet, flag(i));
  };
  const auto slot = [&](std::uint32_t i) { return place(call.rank, peer, i); };
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (exists(i)) push(i, mine[i]);
  }
  InStreamBudget budget({call, state});
  Ll128Packet theirs;
  bool received = exists(0) && receive_packet(theirs, slot(0), peer, flag(0), budget);
  received = epoch.all_agree() && received;
  const bool has_one_each = blockIdx.x + kLl128Warps * gridDim.x >= packets;
  if (has_one_each) epoch.trigger_dependents();
  for (std::uint32_t first = 0; received; first += kAhead) {
#pragma unroll
    for (std::uint32_t j = 0; j < kAhead; ++j) {
      const std::uint32_t i = first + j;
      if (!received) break;
      typename Codec::template PacketResult<kOp> result;
      result.combine_next(call.rank == 0 ? mine[j] : theirs.data(), true);
      result.combine_next(call.rank == 0 ? theirs.data() : mine[j], false);
      const bool goes_on = exists(i + 1);
      if (goes_on) theirs.load(slot(i + 1));  // its way is as long as the work on this one
      if (exists(i + kAhead)) {
        mine[j] = next;
        push(i + kAhead, next);
        if (exists(i + kAhead + 1)) next = read(i + kAhead + 1);
      }
      elements.write(call.recv, number(i), result.as_output(2));
      received = goes_on && (__all_sync(kWarp, theirs.is_of(flag(i + 1))) ||
                             receive_packet(theirs, slot(i + 1), peer, flag(i + 1), budget));
    }
  }
  epoch.leave();
}

}  // namespace arcomm::device
