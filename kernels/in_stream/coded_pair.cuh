// pair_ll128 with a codec: each rank encodes its input once and decodes both, its own, too. Its
// packets take turns in the slots as pair_ll128's do; but to encode and to decode is long code, of
// which there is one copy each, in one loop: packet i goes out in the same turn in which packet
// i - kInStreamAhead comes in.
#pragma once

#include "kernels/codec/coded.cuh"
#include "kernels/in_stream/exchange.cuh"

namespace arcomm::device {

// `vectors`: the own buffers lie on 16 bytes.
template <PacketCodec Codec>
__device__ __forceinline__ void coded_pair(InStreamExchange& exchange, bool vectors,
                                           const Divisor& divisor) {
  constexpr std::uint32_t kAhead = kInStreamAhead;
  const std::uint32_t rank = exchange.rank(), peer = 1 - rank;
  const typename Codec::Packets elements({0, exchange.count()}, vectors);
  const std::uint32_t packets = packets_of<Codec>(exchange.count());
  // Of packet i of this warp.
  const auto number = [](std::uint32_t i) { return packet_of_all(packet_of_block(i)); };
  const auto exists = [&](std::uint32_t i) { return exchange.moves() && number(i) < packets; };
  const bool has_one_each = packet_of_all(kLl128Warps) >= packets;

  // A packet's elements are on their way while the one before it is decoded.
  constexpr bool kLoadsEarly = Codec::kLoadsEarly;

  exchange.enter();
  auto budget = exchange.budget();
  typename Codec::Packet sent[kAhead], next{};  // the one that comes in first, first
  typename Codec::Input input;
  if (kLoadsEarly && exists(0)) input = elements.load(exchange.send(), number(0));
  bool received = false;
#pragma unroll 1
  for (std::uint32_t i = 0;; ++i) {
    const std::uint32_t in = i - kAhead;
    const bool takes = i >= kAhead && exists(in);
    Ll128Packet theirs;
    if (takes) theirs.load(exchange.slot(rank, peer, in));  // on its way while this one is encoded
    if (exists(i)) {
      if (!kLoadsEarly) input = elements.load(exchange.send(), number(i));
      next = elements.encode(input);
    }
    if (kLoadsEarly && exists(i + 1)) input = elements.load(exchange.send(), number(i + 1));
    if (i == 0 && !exchange.begins()) return exchange.leave(false);
    received = takes && (__all_sync(kWarp, theirs.is_of(exchange.flag_in_slot(in))) ||
                         receive_packet(theirs, exchange.slot(rank, peer, in), peer,
                                        exchange.flag_in_slot(in), budget));
    if (i == kAhead) {
      received = exchange.may_write() && received;
      if (has_one_each) exchange.waits_no_more();
    }
    if (i >= kAhead && !received) break;
    if (exists(i)) store_packet(exchange.slot(peer, rank, i), next, exchange.flag_in_slot(i));
    if (takes) {
      elements.write_sum(exchange.recv(), number(in), rank == 0 ? sent[0] : theirs.data(),
                         rank == 0 ? theirs.data() : sent[0], divisor);
    }
#pragma unroll
    for (std::uint32_t j = 0; j + 1 < kAhead; ++j) sent[j] = sent[j + 1];
    sent[kAhead - 1] = next;
  }
  exchange.leave(received);
}

}  // namespace arcomm::device
