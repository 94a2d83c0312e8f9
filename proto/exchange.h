// The memory through which the ranks of a communicator hand each other what in-stream operations
// need: AllReduces that each rank's own stream runs, by a kernel that the daemon hands over with
// the memory (kernels/in_stream.h). Between a call and the links there is then no other process,
// and no other kernel.
//
// One exchange per rank, in the memory of its GPU: allocated and cleared by the daemon, mapped by
// every rank's client, touched by those kernels alone. Block b of a rank's kernel deals with block
// b of the others' and with nobody else, in areas and under numbers of its own; numbers count the
// operations that had such a block. An area has two halves, for odd and for even numbers: a peer
// that writes for number n + 2 has had our part of n + 1, so we had ended n.
//
// Trust: the members of a communicator can write all of its exchanges, and so spoil each other's
// sums, as each could by its own input; nobody else can. The daemon reads none of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/device_mailbox.h"
#include "proto/types.h"

namespace arcomm {

// Of what client and daemon share here: the layout, InStreamCall, in_stream_shape(), the kernels'
// names, and that they wait themselves for what is before them in the stream, as clients launch
// them early (from 2 on). Kernels are lent only to clients of the same number.
inline constexpr std::uint32_t kInStreamAbi = 4;
inline constexpr std::uint32_t kMaxInStreamBlocks = 96;  // of one operation
inline constexpr std::uint32_t kInStreamThreads = 512;   // that move data; a warp more looks on
inline constexpr std::uint32_t kInStreamBlockThreads = kInStreamThreads + 32;

// A block takes an SM for itself, and waits for other GPUs, which may have begun with another
// communicator's operation: so those of all in-stream communicators of a GPU must find room there
// side by side, beside what else stays on it (the resident grid takes ten SMs, gates a little).
inline constexpr std::uint32_t kSparedSms = 12;
inline constexpr std::uint32_t kSmallShare = 24;
// How many blocks one more communicator gets on a GPU with so many SMs, of which others have
// `taken`: most of them, and leaves a small share; or a small share; or none.
constexpr std::uint32_t in_stream_share(std::uint32_t sms, std::uint32_t taken) {
  if (sms < kSparedSms + 2 * kSmallShare) return 0;
  const std::uint32_t all = sms - kSparedSms, rest = all - std::min(all, taken);
  const std::uint32_t large = std::min(kMaxInStreamBlocks, all - kSmallShare);
  return rest >= large ? large : rest >= kSmallShare ? kSmallShare : 0;
}

enum class InStreamAlgorithm : std::uint32_t {
  OneShotLl16 = 0,   // as CudaAlgorithm's of these names
  OneShotLl128 = 1,  // this and what follows only between GPUs that store lines of 128 bytes whole
  TwoShotLl128 = 2,
  PairLl128 = 3  // one_shot_ll128 between two ranks, also longer than its areas
};
inline constexpr std::uint32_t kInStreamAlgorithms = 4;

// A line whose halves are each written and read whole. What all ranks must agree on.
struct alignas(16) InStreamHead {
  std::uint32_t what;  // type, operation, algorithm, blocks
  std::uint32_t number;
  std::uint32_t count;  // elements
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
// it writes no slot that is still to be read. Which lap over the slots it is, is part of a packet's
// flag. Operations of more laps a launch of `stream` does in less time.
inline constexpr std::uint32_t kInStreamAhead = 2, kInStreamSlots = 2 * kInStreamAhead,
                               kInStreamLaps = 3;
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

// How an operation is run directly; the same on all ranks, as it follows from what they agree on.
struct InStreamShape {
  InStreamAlgorithm algorithm = InStreamAlgorithm::OneShotLl16;
  std::uint32_t blocks = 0;  // 0: not directly

  std::uint32_t what(DType dtype, ReduceOp op) const {
    return static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(op) << 8 |
           static_cast<std::uint32_t>(algorithm) << 16 | blocks << 24;
  }
};

constexpr bool has_in_stream_kernel(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16 || dtype == DType::Float32;
}

// What the GPUs of a communicator give, together.
struct InStreamRoom {
  bool atomic_128b_stores = false;  // they have passed the test of kernels/lines/ll128_self_test.h
  std::uint32_t blocks = kMaxInStreamBlocks;
  std::uint64_t most_bytes = ~std::uint64_t{0};  // what is longer the daemon launches
};
InStreamShape in_stream_shape(std::uint64_t bytes, std::uint32_t ranks, DType dtype,
                              InStreamRoom room);

// What is in the image beside kInStreamWaitName, and under which names.
struct InStreamKernel {
  InStreamAlgorithm algorithm;
  DType dtype;
  ReduceOp op;
};
std::vector<InStreamKernel> all_in_stream_kernels();
std::string in_stream_kernel_name(InStreamAlgorithm algorithm, DType dtype, ReduceOp op);

// Arguments of each of them: addresses as this rank's GPU sees them. Launched with
// InStreamShape::blocks blocks of kInStreamBlockThreads.
struct InStreamCall {
  const void* send = nullptr;
  void* recv = nullptr;
  DeviceMailbox* mailbox = nullptr;
  HostDoorbells* doorbells = nullptr;
  // Where each block says that it has left; null for those that nobody counts, as a graph's.
  std::uint32_t* left = nullptr;
  InStreamControl* exchange[kMaxGpuRanks] = {};
  std::uint64_t timeout_ns = 0;
  std::uint32_t count = 0;
  std::uint32_t what = 0;
  std::uint32_t rank = 0, ranks = 0;
  // Of the waiting kernel: until so many have left, those of the calls before this one.
  std::uint32_t behind = 0;
};
static_assert(std::is_standard_layout_v<InStreamCall> && sizeof(InStreamCall) == 136 &&
              offsetof(InStreamCall, exchange) == 40 && offsetof(InStreamCall, count) == 112);

// One thread, put on a stream ahead of an operation whose predecessors other streams have: until
// their blocks have left, which would else be waited for by a whole grid.
inline constexpr const char* kInStreamWaitName = "arcomm_wait_behind";

}  // namespace arcomm
