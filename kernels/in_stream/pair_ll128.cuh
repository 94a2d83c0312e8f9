// one_shot_ll128 between two, for longer operations than its areas hold: there one hop carries no
// more than two hops would. A warp's packets take turns in its slots (proto/gpu/exchange.h,
// kInStreamAhead), so this is written for InStreamExchange alone; a launch's scratch has room for
// every packet, and one_shot_ll128 uses it.
#pragma once

#include "kernels/in_stream/exchange.cuh"

namespace arcomm::device {

// Three packets of a warp are under way at a time: one on the links, one in registers that goes
// next, and one that is being read. `vectors`: the own buffers lie on 16 bytes.
template <PacketCodec Codec, ReduceOp kOp>
__device__ __forceinline__ void pair_ll128(InStreamExchange& exchange, bool vectors) {
  using Packet = typename Codec::Packet;
  constexpr std::uint32_t kAhead = kInStreamAhead;
  const typename Codec::Packets elements({0, exchange.count()}, vectors);
  const std::uint32_t packets = packets_of<Codec>(exchange.count());
  // Of packet i of this warp.
  const auto number = [](std::uint32_t i) { return packet_of_all(packet_of_block(i)); };
  const auto exists = [&](std::uint32_t i) { return exchange.moves() && number(i) < packets; };
  const auto read = [&](std::uint32_t i) { return elements.read(exchange.send(), number(i)); };

  exchange.enter();
  Packet mine[kAhead], next{};
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (exists(i)) mine[i] = read(i);
  }
  if (exists(kAhead)) next = read(kAhead);
  if (!exchange.begins()) return exchange.leave(false);
  const std::uint32_t rank = exchange.rank(), peer = 1 - rank;
  auto budget = exchange.budget();
  const auto flag = [&](std::uint32_t i) { return exchange.flag_in_slot(i); };
  const auto push = [&](std::uint32_t i, const Packet& packet) {
    store_packet(exchange.slot(peer, rank, i), packet, flag(i));
  };
  const auto slot = [&](std::uint32_t i) { return exchange.slot(rank, peer, i); };
  Ll128Packet theirs;
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (exists(i)) push(i, mine[i]);
  }
  bool received = exists(0) && receive_packet(theirs, slot(0), peer, flag(0), budget);
  received = exchange.may_write() && received;
  const bool has_one_each = packet_of_all(kLl128Warps) >= packets;
  if (has_one_each) exchange.waits_no_more();
  for (std::uint32_t first = 0; received; first += kAhead) {
#pragma unroll
    for (std::uint32_t j = 0; j < kAhead; ++j) {
      const std::uint32_t i = first + j;
      if (!received) break;
      typename Codec::template PairResult<kOp> result;
      result.combine_next(rank == 0 ? mine[j] : theirs.data(), true);
      result.combine_next(rank == 0 ? theirs.data() : mine[j], false);
      const bool goes_on = exists(i + 1);
      // Its way is as long as the work on this one.
      if (goes_on) theirs.load(slot(i + 1));
      if (exists(i + kAhead)) {
        mine[j] = next;
        push(i + kAhead, next);
        if (exists(i + kAhead + 1)) next = read(i + kAhead + 1);
      }
      elements.write(exchange.recv(), number(i), result.as_output(2));
      received = goes_on && (__all_sync(kWarp, theirs.is_of(flag(i + 1))) ||
                             receive_packet(theirs, slot(i + 1), peer, flag(i + 1), budget));
    }
  }
  exchange.leave(received);
}

}  // namespace arcomm::device
