// Where the resident kernel's ranks leave things for each other, and which way an operation goes:
// pure arithmetic, proven in tests/unit/kernels. Units: bytes.
//
// A member's scratch: headers [half][rank][block], then two halves of one slot per rank. Halves
// alternate by operation. A slot begins with the lines of small operations, 8 bytes of data in 16
// (LL16); behind them lie the packets of larger ones, 120 in 128 (LL128), so that no flag is ever
// looked for where data may lie. Where 128 bytes do not arrive whole, all of it is LL16's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ll128_layout.h"
#include "proto/device_mailbox.h"

namespace arcomm {

// Ten blocks of 256 threads are 0.95% of the thread slots of an H200.
inline constexpr std::uint32_t kResidentBlocks = 10;
inline constexpr std::uint32_t kResidentThreads = 256;
inline constexpr std::uint32_t kResidentWarps = kResidentThreads / kLl128Lanes;

inline constexpr std::uint32_t kMostResidentRanks = 8;
inline constexpr std::uint64_t kResidentHeaderBytes = 4096;
inline constexpr std::uint64_t kResidentHalfBytes = 4 * 1024 * 1024;
inline constexpr std::uint64_t kResidentScratchBytes =
    kResidentHeaderBytes + 2 * kResidentHalfBytes;
static_assert(2 * kMostResidentRanks * kResidentBlocks * 16 <= kResidentHeaderBytes);

// Up to here the shorter way of LL16 counts, beyond it what LL128 saves on the link.
inline constexpr std::uint64_t kResidentLl16Bytes = 16 * 1024;
inline constexpr std::uint64_t kResidentPacketsOffset = 2 * kResidentLl16Bytes;

// The slots of 3 ranks are those of 4, and so on.
constexpr std::uint64_t resident_slot_bytes(std::uint32_t ranks) {
  std::uint64_t slot = kResidentHalfBytes;
  for (std::uint32_t served = 1; served < ranks; served *= 2) slot /= 2;
  return slot;
}

// What fits into a slot.
constexpr std::uint64_t resident_capacity(std::uint32_t ranks, bool ll128) {
  const std::uint64_t slot = resident_slot_bytes(ranks);
  return ll128 ? (slot - kResidentPacketsOffset) / kLl128PacketBytes * kLl128PacketData : slot / 2;
}

// How the blocks share an operation.
struct ResidentShare {
  bool packets;          // LL128; else lines of LL16
  std::uint32_t units;   // packets or lines
  std::uint32_t blocks;  // that have part in it; the first one always has
};

constexpr ResidentShare resident_share(std::uint64_t bytes, bool ll128) {
  const bool packets = ll128 && bytes > kResidentLl16Bytes;
  const std::uint64_t units = packets ? ll128_packets(bytes) : (bytes + 7) / 8;
  // A block for each packet, as a warp has it; lines share a block, which is one look less.
  const std::uint64_t per_block = packets ? 1 : kResidentThreads;
  const std::uint64_t wanted = (units + per_block - 1) / per_block;
  return {
      .packets = packets,
      .units = static_cast<std::uint32_t>(units),
      .blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, kResidentBlocks))};
}

}  // namespace arcomm
