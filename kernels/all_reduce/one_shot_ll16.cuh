// One hop, no fence: every rank stores its input into every peer's memory, in lines of 8 bytes and
// their flag. Twice the traffic, so for small operations.
//
// Written for either exchange: LaunchExchange (launch_exchange.cuh), where a thread may have
// several lines, or InStreamExchange (in_stream/exchange.cuh), where it has one at most.
#pragma once

#include "kernels/all_reduce/over_ranks.cuh"

namespace arcomm::device {

template <LineCodec Codec, ReduceOp kOp, typename Exchange>
__device__ __forceinline__ void one_shot_ll16(Exchange& exchange) {
  constexpr std::uint32_t kEach = Codec::kLineElements;
  const std::uint32_t rank = exchange.rank(), ranks = exchange.ranks();
  const std::uint64_t count = exchange.count();
  const auto lines = static_cast<std::uint32_t>((count + kEach - 1) / kEach);
  std::uint32_t line = exchange.thread();
  const auto exists = [&] { return exchange.moves() && line < lines; };
  const auto read = [&] {
    if constexpr (!Exchange::kOneEach)
      return Codec::read_elements(exchange.send(), std::uint64_t{line} * kEach, count);
    if (!exists()) return uint2{};
    return Codec::read_line(exchange.send(), std::uint64_t{line} * kEach, count);
  };
  exchange.enter();
  uint2 mine = read(), out{};
  if (!exchange.begins()) return exchange.leave(false);
  auto budget = exchange.budget();
  const auto push = [&] {
#pragma unroll 1
    for (std::uint32_t hop = 1; hop < ranks; ++hop)
      store_ll16(exchange.line(peer_of(rank, ranks, hop), rank, line), mine, exchange.flag());
  };
  // kBatch: ranks whose lines are looked at together.
  const auto reduce = [&]<std::uint32_t kBatch>() {
    return reduce_line<Codec, kOp, kBatch>(
        rank, ranks, mine, [&](std::uint32_t from) { return exchange.line(rank, from, line); },
        exchange.flag(), budget, out);
  };
  if constexpr (Exchange::kOneEach) {
    if (exists()) {
      push();
      if (ranks == 2) {
        reduce.template operator()<2>();
      } else {
        reduce.template operator()<4>();
      }
    }
    const bool may_write = exchange.may_write();
    exchange.waits_no_more();
    if (may_write && exists())
      Codec::write_line(exchange.recv(), std::uint64_t{line} * kEach, count, out);
    exchange.leave(may_write);
  } else {
    bool received = true;
    for (; received && exists(); line += exchange.threads(), mine = read()) {
      push();
      received = reduce.template operator()<1>();
      if (received) Codec::write_elements(exchange.recv(), std::uint64_t{line} * kEach, count, out);
    }
    exchange.leave(received);
  }
}

}  // namespace arcomm::device
