// As all_reduce/one_shot_ll128.cu, between more than two ranks, for at most one packet per warp.
#pragma once

#include "kernels/direct/own_packets.cuh"

namespace arcomm::device {

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ void one_shot_ll128(const DirectCall& call) {
  __shared__ TurnWords words;
  const OwnPackets<Format> packets(call);
  LaneData mine{}, out{};
  Turn turn(call, words);
  const bool moves = packets.exists(0);
  if (moves) mine = packets.read(0);
  if (!turn.begins()) return turn.leave();
  if (turn.looks_on()) turn.agree();
  DirectPatience patience(call, words);
  if (moves) {
    for (std::uint32_t hop = 1; hop < call.ranks; ++hop)
      store_packet(packets.place(turn, peer_of(call, hop), call.rank, 0), mine, turn.flag());
    reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return packets.place(turn, call.rank, rank, 0); },
        turn.flag(), patience, out);
  }
  const bool agree = turn.all_agree();
  turn.let_next_begin();
  if (agree && moves) packets.write(0, out);
  turn.leave();
}

}  // namespace arcomm::device
