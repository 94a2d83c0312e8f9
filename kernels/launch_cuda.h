// AllReduce between GPUs of one node that reach each other's memory: one launch per rank, on its
// own GPU, in the same order of operations on every rank. What a result is: launch.h; every
// algorithm here keeps those rules bit for bit.
//
// Scratch: cuda_scratch_bytes() per rank and communicator (one rank alone too), zeroed once, mapped
// on all the ranks' GPUs, and then touched by these kernels alone. Its regions never move with the
// size of an operation. Epochs live in it, on the device, so that a launch replayed from a graph is
// a new operation. Operations of one communicator must be ordered on each rank (one stream, or
// events). Waiting: a launch waits for the operation's timeout at most (and kForResultsNs), or
// until abort_all_reduce(); what happened is in the rank's CudaOutcome. After an outcome that is
// not Done the communicator must get new scratch. Any thread; nothing here allocates or waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/args.h"
#include "kernels/lines/ll128_layout.h"
#include "proto/status.h"

namespace arcomm {

// Written to tuning files by name, never by number.
enum class CudaAlgorithm : std::uint8_t {
  OneShotLl16,   // pushes 8 bytes and their flag in one store; one hop; up to kMaxLl16Bytes
  TwoShot,       // each rank reduces its shard from everybody's input into everybody's output
  Stream,        // the same through rings of slots, so that only stores cross the links
  Flash,         // pulls everybody's input through shared memory, three copies ahead
  OneShotLl128,  // pushes lines of 124 bytes and their flag; one hop; small operations
  TwoShotLl128,  // the same to each shard's owner and from there to all; small and middle ones
  CopyEngine,    // the copy engines carry it all, in chunks; the largest. See copy_engine.h
  Alone          // one rank: its input is its output
};

inline constexpr std::uint64_t kMaxLl16Bytes = 512ull * 1024;
inline constexpr std::uint32_t kMaxCudaBlocks = 128;
// What the built-in rule gives at most: of an H200's 132 SMs the resident grid takes part of
// ten and clients' waiting kernels part of some. A block that found no room would run after all
// others: 20 us for 4 MB and more.
inline constexpr std::uint32_t kDefaultCudaBlocks = 112;

// Scratch: control page; for OneShotLl16 two halves (odd and even epochs) of one area per rank,
// twice the data's size; for LL128 two halves, one after the other used by either algorithm; for
// Stream a ring of slots per block and sender; and, over those, for CopyEngine slots for chunks.
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
// Over the slots of Stream, whose state is in the control page: all ranks' streams meet before the
// copies, and again behind them. (After an error nobody uses the scratch again.)
inline constexpr std::uint64_t kCopyOffset = kStreamOffset;
inline constexpr std::uint64_t kCopySlotBytes = 32ull * 1024 * 1024;
inline constexpr std::uint32_t kCopySlots = 2;  // chunks of each peer that there is room for
inline constexpr std::uint64_t kMinCopyChunk = 1024ull * 1024;
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
constexpr std::uint64_t cuda_scratch_bytes(std::uint32_t ranks) {
  return std::max(stream_end(ranks), copy_end(ranks));
}

// What there is to choose from: values that need no CUDA to be read (cuda_algorithms.cc).
struct CudaAlgorithmEntry {
  CudaAlgorithm algorithm;
  std::string_view name;  // as in tuning files
  std::uint32_t min_ranks, max_ranks;
  std::uint64_t max_bytes;  // per rank, between two; can_launch() knows the rest. 0: any number
  bool needs_atomic_128b_stores =
      false;                        // only between GPUs that passed the test of ll128_self_test.h
  bool launches_all_ranks = false;  // not by launch_all_reduce(): see copy_engine.h
  std::uint64_t sensible_from = 0;  // bytes, where the tuner begins to measure it
};
// What the GPUs of a communicator can do.
struct CudaAbilities {
  bool atomic_128b_stores = false;
};
// One entry per CudaAlgorithm, in the enum's order.
std::span<const CudaAlgorithmEntry> cuda_algorithms();
const CudaAlgorithmEntry& entry_of(CudaAlgorithm algorithm);
std::string_view name_of(CudaAlgorithm algorithm);
std::optional<CudaAlgorithm> cuda_algorithm_named(std::string_view name);
// The same for a shape known from a table; the error says why not.
Status can_launch(CudaAlgorithm algorithm, std::uint64_t bytes, std::uint32_t ranks);
bool can_run(CudaAlgorithm algorithm, CudaAbilities abilities);
// What to run instead between GPUs that cannot run it; itself where they can.
CudaAlgorithm algorithm_among(CudaAbilities abilities, CudaAlgorithm algorithm,
                              std::uint64_t bytes);
std::uint32_t sms_of(int ordinal);  // that GPU's streaming multiprocessors; 0: CUDA does not say

enum class CudaOutcomeCode : std::uint32_t { Done = 0, Timeout = 1, Aborted = 2, EpochsUsedUp = 3 };

// At the start of a rank's scratch, device memory: the first thing that went wrong stays.
struct alignas(8) CudaOutcome {
  std::uint32_t code;     // CudaOutcomeCode
  std::uint32_t culprit;  // rank that was waited for
};

// Device pointers, valid on the GPU of `rank`. send and recv of the other ranks are used by
// TwoShot and Flash, and recv of Stream and CopyEngine. Pointers are aligned to the element.
struct CudaAllReduce {
  const void* send[kMaxGpuRanks] = {};
  void* recv[kMaxGpuRanks] = {};
  void* scratch[kMaxGpuRanks] = {};
  // Who is told, where not null, when this rank's part has ended: `done_word`, the Done of a
  // mailbox (proto/device_mailbox.h), goes to both places when it went well (released: whoever
  // acquires it may read recv), the CudaOutcome to `host_outcome` when not. host_*: device pointers
  // of pinned host memory.
  std::uint64_t* done = nullptr;
  std::uint64_t* host_done = nullptr;
  CudaOutcome* host_outcome = nullptr;
  std::uint64_t done_word = 0;
  std::uint64_t count = 0;  // elements
  std::uint64_t timeout_ns = 0;
  int ordinal = -1;  // the rank's GPU; -1: it is current
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  // 1 .. kMaxGpuRanks; alone, only `Alone`
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  bool gated = false;  // put into its stream behind a gate: gated_launch.h sets it
};

// How many thread blocks an operation gets, the same on every rank; 0: the built-in rule.
struct CudaShape {
  std::uint32_t blocks = 0;
};
// Whether the algorithm takes that operation; the error says why not.
Status can_launch(CudaAlgorithm algorithm, const CudaAllReduce& call);
// `stream`: a cudaStream_t of the rank's GPU.
Status launch_all_reduce(CudaAlgorithm algorithm, const CudaAllReduce& call, CudaShape shape,
                         void* stream);
// Ends what waits on the rank whose scratch this is, through a stream that nothing blocks.
Status abort_all_reduce(void* scratch, void* stream);
// Loads every kernel into the current device: a kernel that is loaded at its first launch would
// wait for the ones that run, and they for it.
Status load_all_reduce_kernels();

}  // namespace arcomm
