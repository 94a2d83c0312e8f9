// As all_reduce/two_shot_ll128.cu: two hops, each shard through its owner.
#pragma once

#include "kernels/in_stream/own_packets.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ void two_shot_ll128(const InStreamCall& call) {
  using Elements = PacketElements<Format>;
  constexpr std::uint64_t kPerPacket = kLl128PacketData / sizeof(typename Format::Stored);
  __shared__ BlockState state;
  const bool vectors = can_move_vectors(call);
  const auto dtype = static_cast<DType>(call.what & 0xffU);
  const auto shard = [&](std::uint32_t owner) {
    return shard_range(call.count, dtype, call.ranks, owner);
  };
  const auto has = [&](std::uint32_t owner, std::uint32_t packet) {
    return packet * kPerPacket < shard(owner).size();
  };
  // Its warps deal out one by one what goes to and comes from others; each rank starts with another
  // peer.
  const bool moves = threadIdx.x < kInStreamThreads;
  const std::uint32_t warp = threadIdx.x / kLl128Lanes, peers = call.ranks - 1;
  const auto longest = static_cast<std::uint32_t>((shard(0).size() + kPerPacket - 1) / kPerPacket);
  const std::uint32_t own_packets =
      longest / gridDim.x + (blockIdx.x < longest % gridDim.x ? 1 : 0);
  const std::uint32_t of_others = moves ? own_packets * peers : 0;
  const auto owner_of = [&](std::uint32_t i) { return (call.rank + 1 + i % peers) % call.ranks; };
  const auto packet_of = [&](std::uint32_t i) { return blockIdx.x + i / peers * gridDim.x; };
  const auto read = [&](std::uint32_t i) {
    const std::uint32_t owner = owner_of(i), packet = packet_of(i);
    if (i >= of_others || !has(owner, packet)) return LaneData{};
    return Elements(shard(owner), vectors).read(call.send, packet);
  };
  BlockEpoch epoch(call, state);
  LaneData next = read(warp);
  if (!epoch.begins()) return epoch.leave();
  if (epoch.is_watcher()) epoch.agree();
  const auto at = [&](std::uint32_t rank, std::uint32_t from, std::uint32_t own_packet) {
    return epoch.packets(rank, from) + own_packet * (kLl128PacketBytes / sizeof(uint4));
  };
  for (std::uint32_t i = warp; i < of_others; i += kInStreamWarps) {
    const std::uint32_t owner = owner_of(i);
    const LaneData mine = next;
    next = read(i + kInStreamWarps);
    if (has(owner, packet_of(i))) store_packet(at(owner, call.rank, i / peers), mine, epoch.flag());
  }

  // A warp has at most one packet of the own shard.
  static_assert(kInStreamPartPackets <= kInStreamWarps);
  const Elements own(shard(call.rank), vectors);
  const std::uint32_t packet = blockIdx.x + warp * gridDim.x;
  const bool reduces = moves && warp < own_packets && has(call.rank, packet);
  InStreamBudget budget({call, state});
  LaneData out;
  bool reduced = false;
  if (reduces) {
    const LaneData mine = own.read(call.send, packet);
    reduced = reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return at(call.rank, rank, warp); }, epoch.flag(),
        budget, out);
    for (std::uint32_t hop = 1; reduced && hop < call.ranks; ++hop)
      store_packet(at(peer_of(call, hop), call.rank, kInStreamPartPackets + warp), out,
                   epoch.flag());
  }
  bool received = epoch.all_agree();
  if (reduced && received) own.write(call.recv, packet, out);
  // Who waits for results waits longer than who waits for parts: the rank to be named is the one
  // that did not come.
  budget.grow(kForResultsNs);
  for (std::uint32_t i = warp; received && i < of_others; i += kInStreamWarps) {
    const std::uint32_t owner = owner_of(i);
    if (!has(owner, packet_of(i))) continue;
    Lines lines;
    received = receive_packet(lines, at(call.rank, owner, kInStreamPartPackets + i / peers), owner,
                              epoch.flag(), budget);
    if (received) Elements(shard(owner), vectors).write(call.recv, packet_of(i), lines.data());
  }
  epoch.leave();
}

}  // namespace arcomm::device
