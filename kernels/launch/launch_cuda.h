// AllReduce between GPUs of one node that reach each other's memory: one launch per rank, on its
// own GPU, in the same order of operations on every rank. What a result is: launch.h; every
// algorithm of cuda_algorithms.h keeps those rules bit for bit.
//
// The ranks hand each other what they need through scratch; cuda_scratch.h says how large it is and
// whose. Epochs live in it, on the device, so that a launch replayed from a graph is a new
// operation. Operations of one communicator must be ordered on each rank (one stream, or events). A
// launch waits for the operation's timeout at most (and kForResultsNs), or until
// abort_all_reduce(); the rank's CudaOutcome says what happened. After an outcome that is not Done
// the communicator must get new scratch. Any thread; nothing here allocates or waits.
#pragma once

#include <cstdint>

#include "kernels/cuda_algorithms.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// The most blocks that the built-in rule gives. Of an H200's 132 SMs the resident grid takes a part
// of ten, and clients' waiting kernels take parts of some. A block that finds no room runs after
// all others, which costs 20 us from 4 MB on.
inline constexpr std::uint32_t kDefaultCudaBlocks = 112;

enum class CudaOutcomeCode : std::uint32_t { Done = 0, Timeout = 1, Aborted = 2, EpochsUsedUp = 3 };

// At the start of a rank's scratch, in device memory. The first thing that went wrong stays.
struct alignas(8) CudaOutcome {
  std::uint32_t code;     // CudaOutcomeCode
  std::uint32_t culprit;  // rank that was waited for
};

// Device pointers, valid on the GPU of `rank`. TwoShot and Flash use send and recv of the other
// ranks, Stream and CopyEngine use their recv. Pointers are aligned to the element.
struct CudaAllReduce {
  const void* send[kMaxGpuRanks] = {};
  void* recv[kMaxGpuRanks] = {};
  void* scratch[kMaxGpuRanks] = {};
  // Where the launch says, unless null, that this rank's part has ended. When it went well,
  // `done_word`, the Done of a mailbox (proto/gpu/device_mailbox.h), is released to `done` and
  // `host_done`: a reader that acquires it may read recv. Otherwise the CudaOutcome goes to
  // `host_outcome`. host_*: device pointers of pinned host memory.
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
  Codec codec = Codec::None;  // of the algorithms on lines: kernels/codec
  bool gated = false;         // put into its stream behind a gate: gated_launch.h sets it
  std::uint32_t most_blocks = kDefaultCudaBlocks;  // the same on every rank: launch_blocks.h
};

// How many thread blocks an operation gets, the same on every rank; 0: the built-in rule.
struct CudaShape {
  std::uint32_t blocks = 0;
};
// Whether the algorithm takes that operation; the error says why not.
inline Status can_launch(CudaAlgorithm algorithm, const CudaAllReduce& call) {
  if (call.rank >= call.ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", call.rank, " of ",
                 call.ranks, " ranks: they count from 0");
  }
  return can_launch(algorithm, call.count * size_of(call.dtype), call.ranks, call.codec);
}
// `stream`: a cudaStream_t of the rank's GPU.
Status launch_all_reduce(CudaAlgorithm algorithm, const CudaAllReduce& call, CudaShape shape,
                         void* stream);
// A scratch takes so many operations until it must start over; each uses two epochs of 2^32 at
// most.
inline constexpr std::uint32_t kOperationsOfScratch = 1U << 30;
// Epochs begin with the first again, and no flag is left of those before; what gates go by stays.
// For all scratches of a communicator: none may be in use from the first one's start_over() until
// the last one's has ended. Wipes up to half a gigabyte.
Status start_over(void* scratch, std::uint32_t ranks, void* stream);
// Ends all waits of the rank whose scratch this is, through a stream that nothing blocks.
Status abort_all_reduce(void* scratch, void* stream);
// Loads every kernel into the current device. A kernel that is loaded by its first launch would
// wait for those that run, and they for it.
Status load_all_reduce_kernels();

}  // namespace arcomm
