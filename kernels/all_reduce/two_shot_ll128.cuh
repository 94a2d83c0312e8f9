// Two hops of packets of LL128 lines and no fence: every rank pushes its part of shard p to rank p,
// p combines the parts in rank order and pushes the result to everybody. Between more than two
// ranks that is less traffic than one_shot_ll128. Only between GPUs that store such lines whole.
// Parts and results have areas of their own, so within an operation each line is written once.
//
// It is safe in place: a result of shard p contains this rank's part, so that part was read before.
//
// Written for either exchange: LaunchExchange (launch_exchange.cuh), where a warp may have several
// packets of its rank's shard, or InStreamExchange (in_stream/exchange.cuh), where it has one at
// most.
#pragma once

#include "kernels/all_reduce/over_ranks.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

// kBatch: ranks whose packets are looked at together. Shards: of(rank), the elements of that rank's
// shard; packets(), of the longest one; vectors, whether the own buffers lie on 16 bytes.
template <PacketCodec Codec, ReduceOp kOp, std::uint32_t kBatch, typename Exchange, typename Shards>
__device__ __forceinline__ void two_shot_ll128(Exchange& exchange, const Shards& shards) {
  using Packets = typename Codec::Packets;
  const std::uint32_t rank = exchange.rank(), ranks = exchange.ranks(), peers = ranks - 1;
  const auto has = [&](std::uint32_t owner, std::uint32_t packet) {
    return packet * Codec::kPacketElements < shards.of(owner).size();
  };
  // A block's packets of all others' shards go to its warps one by one; each rank starts with
  // another peer.
  const std::uint32_t warp = threadIdx.x / kLl128Lanes, longest = shards.packets();
  const std::uint32_t own_packets =
      longest / gridDim.x + (blockIdx.x < longest % gridDim.x ? 1 : 0);
  const std::uint32_t of_others = exchange.moves() ? own_packets * peers : 0;
  const auto owner_of = [&](std::uint32_t i) { return (rank + 1 + i % peers) % ranks; };
  const auto number = [](std::uint32_t of_block) { return packet_of_all(of_block); };
  const auto read = [&](std::uint32_t i) {
    const std::uint32_t owner = owner_of(i), packet = number(i / peers);
    if (i >= of_others || !has(owner, packet)) return typename Codec::Packet{};
    return Packets(shards.of(owner), shards.vectors).read(exchange.send(), packet);
  };
  exchange.enter();
  auto next = read(warp);
  if (!exchange.begins()) return exchange.leave(false);
  auto budget = exchange.budget();

  for (std::uint32_t i = warp; i < of_others; i += kLl128Warps) {
    const std::uint32_t owner = owner_of(i);
    const auto mine = next;
    next = read(i + kLl128Warps);
    if (has(owner, number(i / peers)))
      store_packet(exchange.part(owner, rank, i / peers), mine, exchange.packet_flag());
  }

  const Packets own(shards.of(rank), shards.vectors);
  const auto reduce_own = [&](std::uint32_t i, typename Codec::Packet& out) {
    const auto mine = own.read(exchange.send(), number(i));
    const bool received = reduce_packet<Codec, kOp, kBatch>(
        rank, ranks, mine, [&](std::uint32_t from) { return exchange.part(rank, from, i); },
        exchange.packet_flag(), budget, [&](const auto& result) { return result.as_packet(ranks); },
        out);
#pragma unroll 1
    for (std::uint32_t hop = 1; received && hop < ranks; ++hop)
      store_packet(exchange.result(peer_of(rank, ranks, hop), rank, i), out,
                   exchange.packet_flag());
    return received;
  };
  const auto write_own = [&](std::uint32_t i, const typename Codec::Packet& out) {
    own.write(exchange.recv(), number(i), Codec::decode(out));
  };
  bool received = true;
  if constexpr (Exchange::kOneEach) {
    typename Codec::Packet out{};
    const bool reduced = exchange.moves() && has(rank, number(warp)) && reduce_own(warp, out);
    received = exchange.may_write();
    if (received && reduced) write_own(warp, out);
  } else {
    for (std::uint32_t i = warp; received && has(rank, number(i)); i += kLl128Warps) {
      typename Codec::Packet out;
      received = reduce_own(i, out);
      if (received) write_own(i, out);
    }
  }

  budget.grow(kForResultsNs);
  for (std::uint32_t i = warp; received && i < of_others; i += kLl128Warps) {
    const std::uint32_t owner = owner_of(i), packet = number(i / peers);
    if (!has(owner, packet)) continue;
    Ll128Packet result;
    received = receive_packet(result, exchange.result(rank, owner, i / peers), owner,
                              exchange.packet_flag(), budget);
    if (!received) break;
    Packets(shards.of(owner), shards.vectors)
        .write(exchange.recv(), packet, Codec::decode(result.data()));
  }
  exchange.leave(received);
}

}  // namespace arcomm::device
