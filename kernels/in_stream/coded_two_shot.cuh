// two_shot_ll128 with a codec, between more than two ranks: every rank encodes its part of shard p
// for rank p, p adds the decoded parts in rank order, encodes the sum once more, and writes what
// all others will decode. Operations longer than the areas are done in rounds
// (proto/gpu/exchange.h): a warp's packets of one round come before its next one's, and no warp
// waits for another of its block.
//
// It is safe in place, as two_shot_ll128 is: a result of shard p contains this rank's part, so that
// part was read before.
#pragma once

#include <algorithm>

#include "kernels/all_reduce/over_ranks.cuh"
#include "kernels/codec/coded.cuh"
#include "kernels/in_stream/exchange.cuh"

namespace arcomm::device {

// Shards are whole blocks, so that they are cut as the operation is.
template <PacketCodec Codec>
using CodedShards = InStreamShards<Codec, kCacheLineBytes / kCodecBlock>;

// Codec: a CodedCodec.
template <PacketCodec Codec>
__device__ __forceinline__ void coded_two_shot(InStreamExchange& exchange,
                                               const CodedShards<Codec>& shards,
                                               const Divisor& divisor) {
  using Packet = typename Codec::Packet;
  using Packets = typename Codec::Packets;
  constexpr std::uint32_t kInRound = kInStreamPartPackets;  // a part and a result of each warp
  const std::uint32_t rank = exchange.rank(), ranks = exchange.ranks(), peers = ranks - 1;
  const std::uint32_t warp = threadIdx.x / kLl128Lanes, longest = shards.packets();
  const auto has = [&](std::uint32_t owner, std::uint32_t packet) {
    return packet * Codec::kPacketElements < shards.of(owner).size();
  };
  const auto packets_of_shard = [&](std::uint32_t owner) {
    return Packets(shards.of(owner), shards.vectors);
  };
  // The block's packets of a shard, and those of one round, of which each is one of all peers'.
  const std::uint32_t of_block = longest / gridDim.x + (blockIdx.x < longest % gridDim.x ? 1 : 0);
  const auto owner_of = [&](std::uint32_t i) { return (rank + 1 + i % peers) % ranks; };

  exchange.enter();
  auto budget = exchange.budget();
  bool received = true;
#pragma unroll 1
  for (std::uint32_t round = 0; received; ++round) {
    const std::uint32_t first = round * kInRound;
    if (round != 0 && first >= of_block) break;
    const std::uint32_t here = exchange.moves() ? min(of_block - first, kInRound) : 0;
    const auto number = [&](std::uint32_t i) { return packet_of_all(first + i); };

    // The warp's part of its own shard goes the same way, into this rank's own memory: what is
    // encoded is then one piece of code, and no registers hold it while parts are added.
    const bool reduces = warp < here && has(rank, number(warp));
#pragma unroll 1
    for (std::uint32_t turn = 0, i = warp;; ++turn, i += turn > 1 ? kLl128Warps : 0) {
      const bool is_own = turn == 0;
      const std::uint32_t owner = is_own ? rank : owner_of(i);
      const std::uint32_t place = is_own ? warp : i / peers;
      const bool is_there = is_own ? reduces : i < here * peers && has(owner, number(place));
      Packet mine{};
      if (is_there) mine = packets_of_shard(owner).read(exchange.send(), number(place));
      if (round == 0 && is_own && !exchange.begins()) return exchange.leave(false);
      if (is_there)
        store_packet(exchange.part(owner, rank, place), mine, exchange.packet_flag(round));
      if (!is_own && i + kLl128Warps >= here * peers) break;
    }
    const std::uint32_t flag = exchange.packet_flag(round);

    Packet result{};
    if (reduces) {
      typename Codec::Sealed sealed;
      // Two turns' blocks at a time: more would not find room in the registers. Parts that have
      // come are there at once when they are looked at again.
      const auto add_turns = [&]<std::uint32_t kFirst>() {
        typename Codec::template PacketSum<kFirst, std::min(kFirst + 2, Codec::kTurns)> sum;
#pragma unroll 1
        for (std::uint32_t from = 0; received && from < ranks; ++from) {
          Ll128Packet theirs;
          received = receive_packet(theirs, exchange.part(rank, from, warp), from, flag, budget);
          if (received) sum.combine_next(theirs.data(), from == 0);
        }
        if (received) sum.seal(sealed, divisor);
      };
      add_turns.template operator()<0>();
      if constexpr (Codec::kTurns > 2) add_turns.template operator()<2>();
      if (received) result = sealed.packet();
#pragma unroll 1
      for (std::uint32_t hop = 1; received && hop < ranks; ++hop)
        store_packet(exchange.result(peer_of(rank, ranks, hop), rank, warp), result, flag);
    }
    if (round == 0) {
      received = exchange.may_write() && received;
      budget.grow(kForResultsNs);
    }
    if (received && reduces)
      packets_of_shard(rank).write_decoded(exchange.recv(), number(warp), result);

#pragma unroll 1
    for (std::uint32_t i = warp; received && i < here * peers; i += kLl128Warps) {
      const std::uint32_t owner = owner_of(i), packet = number(i / peers);
      if (!has(owner, packet)) continue;
      Ll128Packet theirs;
      received =
          receive_packet(theirs, exchange.result(rank, owner, i / peers), owner, flag, budget);
      if (received) packets_of_shard(owner).write_decoded(exchange.recv(), packet, theirs.data());
    }
  }
  exchange.leave(received);
}

}  // namespace arcomm::device
