// Where everything lies in a rank's scratch, through which launched kernels hand each other what
// they need: pure arithmetic, proven in tests/unit/kernels. Sizes and offsets in bytes.
//
// A rank has cuda_scratch_bytes() per communicator, mapped on all the ranks' GPUs and touched by
// these kernels alone: the first cuda_state_bytes() from the beginning and zeroed once, the slots
// behind them from when an algorithm first needs them, and never zeroed, since what says which of
// them hold something is in the control page. One that is alone hands nobody anything, and has the
// control page only. Regions do not move with the size of an operation:
//   a control page (device/scratch.cuh)
//   OneShotLl16  two halves, for odd and even epochs, of one area per rank, twice the data's size
//   LL128        two halves (lines/ll128_layout.h), which both algorithms use in turn
//   Stream       a ring of slots per block and sender
//   CopyEngine   slots for chunks, over those of Stream
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/lines/ll128_layout.h"
#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint64_t kMaxLl16Bytes = 512ull * 1024;  // of an operation
inline constexpr std::uint32_t kMaxCudaBlocks = 128;           // of a launch
inline constexpr std::uint64_t kCudaControlBytes = 64ull * 1024;
inline constexpr std::uint64_t kLl128Offset =
    kCudaControlBytes + 2ull * kMaxGpuRanks * 2 * kMaxLl16Bytes;
inline constexpr std::uint64_t kStreamOffset = kLl128Offset + 2 * kLl128HalfBytes;
inline constexpr std::uint64_t kStreamTileBytes = 64ull * 1024;  // a slot
inline constexpr std::uint32_t kStreamSlots = 4;
constexpr std::uint64_t stream_end(std::uint32_t ranks) {
  return kStreamOffset + std::uint64_t{kMaxCudaBlocks} * kStreamSlots *
                             (ranks == 0 ? 0 : ranks - 1) * kStreamTileBytes;
}
// Over the slots of Stream, whose state is in the control page. That is safe because all ranks'
// streams meet before the copies and again behind them, and nobody uses the scratch after an error.
inline constexpr std::uint64_t kCopyOffset = kStreamOffset;
inline constexpr std::uint64_t kCopySlotBytes = 32ull * 1024 * 1024;
inline constexpr std::uint32_t kCopySlots = 2;  // chunks of each peer that there is room for
constexpr std::uint64_t copy_end(std::uint32_t ranks) {
  return kCopyOffset + std::uint64_t{kCopySlots} * (ranks == 0 ? 0 : ranks - 1) * kCopySlotBytes;
}
// What one chunk puts into a GPU's stream of copies: its parts for the others, each with a wait and
// an event, and its result.
constexpr std::uint64_t copy_entries(std::uint32_t ranks) {
  return 4ull * ranks - 3;
}
// So few chunks, also in place, that a stream has room for all that an operation puts into it,
// which is about 1000 entries: the worker that launches would wait for the GPU.
constexpr std::uint64_t max_copy_engine_bytes(std::uint32_t ranks) {
  return ranks < 2
             ? 0
             : std::min<std::uint64_t>(64, 512 / copy_entries(ranks)) * ranks * kCopySlotBytes;
}

constexpr std::uint64_t cuda_state_bytes(std::uint32_t ranks) {
  return ranks < 2 ? kCudaControlBytes : kStreamOffset;
}
constexpr std::uint64_t cuda_scratch_bytes(std::uint32_t ranks) {
  return ranks < 2 ? kCudaControlBytes : std::max(stream_end(ranks), copy_end(ranks));
}

}  // namespace arcomm
