// The memory through which the ranks of a communicator hand each other what in-stream operations
// need: AllReduces that each rank's own stream runs, by a kernel that the daemon hands over with
// the memory (kernels/in_stream/kernels.h). Between a call and the links there is then no other
// process, and no other kernel.
//
// One exchange per rank, in the memory of its GPU: allocated and cleared by the daemon, mapped by
// every rank's client, touched by those kernels alone. How a kernel is called stands in
// proto/gpu/in_stream_call.h, which operations go this way in the communicator's launch table
// (proto/gpu/launch_table.h). Block b of a rank's kernel deals with block b of the others' and with
// nobody else, in areas and under numbers of its own; numbers count the operations that had such a
// block. An area has two halves, for odd and for even numbers: a peer that writes for number n + 2
// has had our part of n + 1, so we had ended n.
//
// Trust: the members of a communicator can write all of its exchanges, and so spoil each other's
// sums, as each could by its own input; nobody else can. The daemon reads none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint32_t kMaxInStreamBlocks = 95;  // of one operation
inline constexpr std::uint32_t kInStreamThreads = 512;   // that move data; a warp more looks on
inline constexpr std::uint32_t kInStreamBlockThreads = kInStreamThreads + 32;

// A line whose halves are each written and read whole. What all ranks must agree on.
struct alignas(16) InStreamHead {
  std::uint32_t what;  // type, operation, algorithm, blocks; and a part of the identity:
  std::uint32_t number;
  std::uint32_t count_and_identity;  // InStreamCall::say() of in_stream_call.h
  std::uint32_t number_again;
};

struct InStreamBlock {
  std::uint32_t taken;  // operations of this rank that have begun
  std::uint32_t ended;
};

struct InStreamControl {
  alignas(128) InStreamBlock blocks[kMaxInStreamBlocks];                 // the rank's own account
  alignas(128) InStreamHead heads[2][kMaxInStreamBlocks][kMaxGpuRanks];  // by half, block, sender
};
inline constexpr std::uint64_t kInStreamControlBytes = 64ull * 1024;
static_assert(sizeof(InStreamControl) <= kInStreamControlBytes &&
              std::is_standard_layout_v<InStreamControl>);

// Areas behind the control page, of each block and sender. LL16, of the first blocks only: a line
// of 16 bytes per thread, of which 8 are data. LL128: packets, so many for each of a block's warps.
// two_shot_ll128 uses the first kInStreamPartPackets for parts and as many behind them for results.
inline constexpr std::uint32_t kMaxInStreamLl16Blocks = 16;
inline constexpr std::uint64_t kInStreamLl16Bytes = std::uint64_t{kInStreamThreads} * 16;
inline constexpr std::uint64_t kInStreamPacketBytes = 1024, kInStreamPacketData = 992;
inline constexpr std::uint32_t kInStreamPartPackets = kInStreamThreads / 32;
// Between two ranks a warp may have more packets than slots. It pushes packet i once it has taken
// in packet i - kInStreamAhead of its peer, which had by then taken in i - 2 * kInStreamAhead: so
// it writes no slot that is still to be read. Operations of more laps over the slots than
// kInStreamLaps a launch of `stream` does in less time.
//
// With a codec there is no other way, so that an operation has as many laps as it needs: between
// two ranks over these slots; between more in rounds, each a part and a result for each warp. A
// rank writes its part of the next round over that of this one once it has the result of this one,
// for which the owner had read it; and the owner writes the next result once it has all parts of
// the next round, which each rank sends when it has read the result of this one. Which lap or
// round it is, is part of every packet's flag, also where there is one only: the others' would
// else be mistaken for its flag.
inline constexpr std::uint32_t kInStreamAhead = 2, kInStreamSlots = 2 * kInStreamAhead,
                               kInStreamLaps = 3;
inline constexpr std::uint32_t kInStreamLapBits = 8;  // of a packet's flag; the rest is the number
inline constexpr std::uint32_t kMostInStreamLaps = (1U << kInStreamLapBits) - 1;
static_assert(kInStreamLaps <= kMostInStreamLaps);
constexpr std::uint32_t in_stream_packets(std::uint32_t ranks) {
  return (ranks == 2 ? kInStreamSlots : 2) * kInStreamPartPackets;
}

constexpr std::uint64_t in_stream_ll16_offset(std::uint32_t ranks, std::uint32_t number,
                                              std::uint32_t block, std::uint32_t from) {
  const std::uint64_t area = ((number & 1U) * kMaxInStreamLl16Blocks + block) * ranks + from;
  return kInStreamControlBytes + area * kInStreamLl16Bytes;
}
constexpr std::uint64_t in_stream_ll128_offset(std::uint32_t ranks, std::uint32_t number,
                                               std::uint32_t block, std::uint32_t from) {
  const std::uint64_t area = ((number & 1U) * kMaxInStreamBlocks + block) * ranks + from;
  return in_stream_ll16_offset(ranks, 0, 2 * kMaxInStreamLl16Blocks, 0) +
         area * in_stream_packets(ranks) * kInStreamPacketBytes;
}
constexpr std::uint64_t in_stream_exchange_bytes(std::uint32_t ranks) {
  return in_stream_ll128_offset(ranks, 0, 2 * kMaxInStreamBlocks, 0);
}

}  // namespace arcomm
