// As one_shot_ll16, with packets of LL128 lines: one hop and no fence, and 3 percent more traffic
// than data instead of twice as much. Only between GPUs that store such lines whole.
//
// Written for either exchange: LaunchExchange (launch_exchange.cuh), where a warp may have several
// packets, or InStreamExchange (in_stream/exchange.cuh), where it has one at most.
#pragma once

#include "kernels/all_reduce/over_ranks.cuh"
#include "kernels/partition.h"

namespace arcomm::device {

// kBatch: ranks whose packets are looked at together. `vectors`: the own buffers lie on 16 bytes.
template <PacketCodec Codec, ReduceOp kOp, std::uint32_t kBatch, typename Exchange>
__device__ __forceinline__ void one_shot_ll128(Exchange& exchange, bool vectors) {
  constexpr std::uint32_t kAhead = Exchange::kOneEach ? 1 : 3;  // packets read before one is stored
  const std::uint32_t rank = exchange.rank(), ranks = exchange.ranks();
  const typename Codec::Packets elements({0, exchange.count()}, vectors);
  const std::uint32_t packets = packets_of<Codec>(exchange.count());
  // Packet i of this warp, as its block counts and as all do.
  const auto of_block = [](std::uint32_t i) { return packet_of_block(i); };
  const auto number = [](std::uint32_t i) { return packet_of_all(packet_of_block(i)); };
  const auto exists = [&](std::uint32_t i) { return exchange.moves() && number(i) < packets; };

  exchange.enter();
  typename Codec::Packet ahead[kAhead];
  const auto read_ahead = [&](std::uint32_t first) {
#pragma unroll
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      if (exists(first + i)) ahead[i] = elements.read(exchange.send(), number(first + i));
    }
  };
  read_ahead(0);
  if (!exchange.begins()) return exchange.leave(false);
  auto budget = exchange.budget();
  const auto push = [&](std::uint32_t i, const typename Codec::Packet& mine) {
#pragma unroll 1
    for (std::uint32_t hop = 1; hop < ranks; ++hop)
      store_packet(exchange.input(peer_of(rank, ranks, hop), rank, of_block(i)), mine,
                   exchange.packet_flag());
  };
  const auto reduce = [&](std::uint32_t i, const typename Codec::Packet& mine,
                          typename Codec::Output& out) {
    return reduce_packet<Codec, kOp, kBatch>(
        rank, ranks, mine,
        [&](std::uint32_t from) { return exchange.input(rank, from, of_block(i)); },
        exchange.packet_flag(), budget, [&](const auto& result) { return result.as_output(ranks); },
        out);
  };
  const auto write = [&](std::uint32_t i, const typename Codec::Output& out) {
    elements.write(exchange.recv(), number(i), out);
  };
  if constexpr (Exchange::kOneEach) {
    typename Codec::Output out{};
    if (exists(0)) {
      push(0, ahead[0]);
      reduce(0, ahead[0], out);
    }
    const bool may_write = exchange.may_write();
    exchange.waits_no_more();
    if (may_write && exists(0)) write(0, out);
    exchange.leave(may_write);
  } else {
    for (std::uint32_t first = 0; exists(first); first += kAhead) {
      if (first != 0) read_ahead(first);
#pragma unroll
      for (std::uint32_t i = 0; i < kAhead; ++i) {
        if (!exists(first + i)) break;
        push(first + i, ahead[i]);
      }
    }
    // Safe in place: no output of these packets is written yet.
    if (exists(kAhead)) read_ahead(0);
    bool received = true;
#pragma unroll
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      if (!received || !exists(i)) continue;
      typename Codec::Output out;
      received = reduce(i, ahead[i], out);
      if (received) write(i, out);
    }
    for (std::uint32_t i = kAhead; received && exists(i); ++i) {
      typename Codec::Output out;
      received = reduce(i, elements.read(exchange.send(), number(i)), out);
      if (received) write(i, out);
    }
    exchange.leave(received);
  }
}

}  // namespace arcomm::device
