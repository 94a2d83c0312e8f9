// As all_reduce/one_shot_ll128.cu and two_shot_ll128.cu. Packet p of an operation, or of a shard,
// is block p % gridDim.x's on every rank, and the block's own packet p / gridDim.x.
#pragma once

#include "kernels/device/element.cuh"
#include "kernels/device/ll128.cuh"
#include "kernels/direct/turn.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

static_assert(kDirectPacketBytes == kLl128PacketBytes && kDirectPacketData == kLl128PacketData &&
              kDirectThreads == kLl128Threads);

constexpr std::uint32_t kDirectWarps = kDirectThreads / kLl128Lanes;

__device__ __forceinline__ bool can_move_vectors(const DirectCall& call) {
  return (reinterpret_cast<std::uintptr_t>(call.send) |
          reinterpret_cast<std::uintptr_t>(call.recv)) %
             sizeof(uint4) ==
         0;
}

// What one hop does with the packets of a block: each warp has up to kEach of them, kDirectWarps
// apart.
template <typename Format, std::uint32_t kRanks>
class OwnPackets {
 public:
  static constexpr std::uint32_t kEach = (direct_packets(kRanks) + kDirectWarps - 1) / kDirectWarps;

  __device__ __forceinline__ explicit OwnPackets(const DirectCall& call)
      : call_(call),
        elements_({0, call.count}, can_move_vectors(call)),
        packets_(static_cast<std::uint32_t>(
            ll128_packets(std::uint64_t{call.count} * sizeof(typename Format::Stored)))) {}

  __device__ __forceinline__ bool exists(std::uint32_t i) const {
    return threadIdx.x < kDirectThreads && packet(i) < packets_;
  }
  __device__ __forceinline__ void read(LaneData (&mine)[kEach]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (exists(i)) mine[i] = elements_.read(call_.send, packet(i));
    }
  }
  __device__ __forceinline__ void push(const Turn& turn, const LaneData (&mine)[kEach]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (!exists(i)) break;
      for (std::uint32_t hop = 1; hop < call_.ranks; ++hop)  // each rank starts with another peer
        store_packet(place(turn, (call_.rank + hop) % call_.ranks, call_.rank, i), mine[i],
                     turn.flag());
    }
  }
  // Where rank `from` leaves its packet for rank `at`.
  __device__ __forceinline__ uint4* place(const Turn& turn, std::uint32_t at, std::uint32_t from,
                                          std::uint32_t i) const {
    return turn.packets(at, from) + of_block(i) * (kLl128PacketBytes / sizeof(uint4));
  }
  __device__ __forceinline__ void write(std::uint32_t i, const LaneData& out) const {
    elements_.write(call_.recv, packet(i), out);
  }

 private:
  static __device__ __forceinline__ std::uint32_t of_block(std::uint32_t i) {
    return threadIdx.x / kLl128Lanes + i * kDirectWarps;
  }
  static __device__ __forceinline__ std::uint32_t packet(std::uint32_t i) {
    return blockIdx.x + of_block(i) * gridDim.x;
  }

  const DirectCall& call_;
  PacketElements<Format> elements_;
  std::uint32_t packets_;
};

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ void one_shot_between_many(const DirectCall& call) {
  using Packets = OwnPackets<Format, kMaxDirectRanks>;
  __shared__ TurnWords words;
  const Packets packets(call);
  LaneData mine[Packets::kEach], out;
  packets.read(mine);  // while the turn's number is on its way
  Turn turn(call, words);
  if (!turn.runs()) return turn.leave();
  if (turn.looks_on()) turn.agree();
  packets.push(turn, mine);
  DirectPatience patience(call, words);
  const auto reduce = [&](std::uint32_t i) {
    return reduce_packet<Format, kOp, kBatch>(
        call, mine[i], [&](std::uint32_t rank) { return packets.place(turn, call.rank, rank, i); },
        turn.flag(), patience, out);
  };
  bool reduced = packets.exists(0) && reduce(0);
  reduced = turn.all_agree() && reduced;
#pragma unroll
  for (std::uint32_t i = 0; i < Packets::kEach; ++i) {
    if (!reduced) break;
    packets.write(i, out);
    if (i + 1 < Packets::kEach) reduced = packets.exists(i + 1) && reduce(i + 1);
  }
  turn.leave();
}

// All packets of a warp are looked at together: one after the other, each would cost a look of its
// own, and 1 MB 0.5 us for it.
template <typename Format, ReduceOp kOp>
__device__ __forceinline__ void one_shot_between_two(const DirectCall& call) {
  using Packets = OwnPackets<Format, 2>;
  constexpr std::uint32_t kEach = Packets::kEach;
  __shared__ TurnWords words;
  const Packets packets(call);
  LaneData mine[kEach];
  packets.read(mine);  // while the turn's number is on its way
  Turn turn(call, words);
  if (!turn.runs()) return turn.leave();
  if (turn.looks_on()) turn.agree();
  packets.push(turn, mine);
  DirectPatience patience(call, words);
  const std::uint32_t peer = 1 - call.rank;
  Lines theirs[kEach];
  // From packet `first` on, until that one is there; false: the wait failed, or it does not exist.
  const auto wait_for = [&](std::uint32_t first) {
    if (!packets.exists(first)) return false;
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < kEach; ++i) {
        if (i >= first && packets.exists(i))
          theirs[i].load(packets.place(turn, call.rank, peer, i));
      }
      if (__all_sync(kWarp, theirs[first].are_of(turn.flag()))) return true;
      const bool gives_up = lane_of_thread() == 0 && !patience.goes_on(peer);
      if (__any_sync(kWarp, gives_up)) return false;
    }
  };
  bool received = wait_for(0);
  received = turn.all_agree() && received;
#pragma unroll
  for (std::uint32_t i = 0; i < kEach; ++i) {
    if (i > 0 && received) {
      received =
          packets.exists(i) && (__all_sync(kWarp, theirs[i].are_of(turn.flag())) || wait_for(i));
    }
    if (!received) break;
    LaneResult<Format, kOp> result;
    result.combine_next(call.rank == 0 ? mine[i] : theirs[i].data(), true);
    result.combine_next(call.rank == 0 ? theirs[i].data() : mine[i], false);
    packets.write(i, result.finish(2));
  }
  turn.leave();
}

template <typename Format, ReduceOp kOp>
__device__ __forceinline__ void one_shot_ll128(const DirectCall& call) {
  if (call.ranks == 2) {
    one_shot_between_two<Format, kOp>(call);
  } else {
    one_shot_between_many<Format, kOp, 4>(call);
  }
}

template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__device__ __forceinline__ void two_shot_ll128(const DirectCall& call) {
  using Elements = PacketElements<Format>;
  constexpr std::uint64_t kPerPacket = kLl128PacketData / sizeof(typename Format::Stored);
  __shared__ TurnWords words;
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
  const bool moves = threadIdx.x < kDirectThreads;
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
  LaneData next = read(warp);  // while the turn's number is on its way
  Turn turn(call, words);
  if (!turn.runs()) return turn.leave();
  if (turn.looks_on()) turn.agree();
  const auto at = [&](std::uint32_t rank, std::uint32_t from, std::uint32_t own_packet) {
    return turn.packets(rank, from) + own_packet * (kLl128PacketBytes / sizeof(uint4));
  };
  for (std::uint32_t i = warp; i < of_others; i += kDirectWarps) {
    const std::uint32_t owner = owner_of(i);
    const LaneData mine = next;
    next = read(i + kDirectWarps);
    if (has(owner, packet_of(i))) store_packet(at(owner, call.rank, i / peers), mine, turn.flag());
  }

  // A warp has at most one packet of the own shard.
  static_assert(kDirectPartPackets <= kDirectWarps);
  const Elements own(shard(call.rank), vectors);
  const std::uint32_t packet = blockIdx.x + warp * gridDim.x;
  const bool reduces = moves && warp < own_packets && has(call.rank, packet);
  DirectPatience patience(call, words);
  LaneData out;
  bool reduced = false;
  if (reduces) {
    const LaneData mine = own.read(call.send, packet);
    reduced = reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return at(call.rank, rank, warp); }, turn.flag(),
        patience, out);
    for (std::uint32_t hop = 1; reduced && hop < call.ranks; ++hop)
      store_packet(at((call.rank + hop) % call.ranks, call.rank, kDirectPartPackets + warp), out,
                   turn.flag());
  }
  bool received = turn.all_agree();
  if (reduced && received) own.write(call.recv, packet, out);
  // Who waits for results waits longer than who waits for parts: the rank to be named is the one
  // that did not come.
  patience.grow(kForResultsNs);
  for (std::uint32_t i = warp; received && i < of_others; i += kDirectWarps) {
    const std::uint32_t owner = owner_of(i);
    if (!has(owner, packet_of(i))) continue;
    Lines lines;
    received = receive_packet(lines, at(call.rank, owner, kDirectPartPackets + i / peers), owner,
                              turn.flag(), patience);
    if (received) Elements(shard(owner), vectors).write(call.recv, packet_of(i), lines.data());
  }
  turn.leave();
}

}  // namespace arcomm::device
