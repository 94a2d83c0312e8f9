// How an in-stream kernel (kernels/in_stream/kernels.h) is found in the image that the daemon hands
// over, and how it is called: what the daemon's kernels and the libraries that launch them must
// mean by the same bytes. Values only; which operation takes which of them is the launch table's to
// say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/gpu/captured_identity.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/exchange.h"
#include "proto/types.h"

namespace arcomm {

// Of what client and daemon share here and in exchange.h: the layouts, InStreamCall, the kernels'
// names, and that they wait themselves for what is before them in the stream, as clients launch
// them early (from 2 on). Nothing is in-stream in a communicator with a rank of another number.
inline constexpr std::uint32_t kInStreamAbi = 10;

enum class InStreamAlgorithm : std::uint32_t {
  OneShotLl16 = 0,   // as CudaAlgorithm's of these names
  OneShotLl128 = 1,  // this and what follows only between GPUs that store lines of 128 bytes whole
  TwoShotLl128 = 2,
  PairLl128 = 3  // one_shot_ll128 between two ranks, also longer than its areas
};
inline constexpr std::uint32_t kInStreamAlgorithms = 4;
const char* name_of(InStreamAlgorithm algorithm);

// How one operation is run; the same on all ranks, as they have it from the same table.
struct InStreamShape {
  InStreamAlgorithm algorithm = InStreamAlgorithm::OneShotLl16;
  std::uint32_t blocks = 0;  // 0: not in-stream

  // What ranks compare of an operation beside its count. Below kInStreamWhatBits.
  std::uint32_t what(DType dtype, ReduceOp op, Codec codec, Collective collective) const {
    return static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(op) << 4 |
           static_cast<std::uint32_t>(algorithm) << 7 | static_cast<std::uint32_t>(codec) << 10 |
           blocks << 13 | static_cast<std::uint32_t>(collective) << 20;
  }
};

// What ranks say to each other of an operation: what it is, how many elements it has, and, in the
// bits that these leave, its identity (captured_identity.h).
inline constexpr std::uint32_t kInStreamWhatBits = 22, kInStreamCountBits = 24;
inline constexpr std::uint32_t kInStreamIdentityBits = 64 - kInStreamWhatBits - kInStreamCountBits;
static_assert(kIdentityBits <= kInStreamIdentityBits);
// Elements of the longest operation: pair_ll128's, of the smallest type.
static_assert(std::uint64_t{kMaxInStreamBlocks} * (kInStreamThreads / 32) * kInStreamSlots *
                  kInStreamLaps * (kInStreamPacketData / 2) <
              std::uint64_t{1} << kInStreamCountBits);

// What is in the image beside kInStreamWaitName, and under which names: sets, by bit_of(). Of
// what is not in them no row of a launch table may be in-stream.
inline constexpr std::uint16_t kInStreamDTypes =
    bit_of(DType::Float16) | bit_of(DType::BFloat16) | bit_of(DType::Float32);
inline constexpr std::uint8_t kInStreamCodecs = bit_of(Codec::None);
inline constexpr std::uint8_t kInStreamCollectives = bit_of(Collective::AllReduce);
constexpr bool has_in_stream_kernel(DType dtype) {
  return (kInStreamDTypes & bit_of(dtype)) != 0;
}
// InStreamShape::what() has room for so many.
static_assert(kDTypes <= 1 << 4 && kReduceOps <= 1 << 3 && kInStreamAlgorithms <= 1 << 3 &&
              kMaxInStreamBlocks < 1 << 7 && kInStreamCodecs < 1U << (1 << 3) &&
              kInStreamCollectives < 1U << (1 << 2));
struct InStreamKernel {
  InStreamAlgorithm algorithm;
  DType dtype;
  ReduceOp op;
};
std::vector<InStreamKernel> all_in_stream_kernels();
std::string in_stream_kernel_name(InStreamAlgorithm algorithm, DType dtype, ReduceOp op);

// Why a process itself keeps its communicators from being in-stream, as it says when it joins one;
// the last is the daemon's own word.
enum class InStreamHindrance : std::uint32_t {
  None = 0,
  SmLimit = 1,        // MPS gives it a part of the SMs, and blocks that wait would find no room
  PostsByMemory = 2,  // ARCOMM_POST=memops: no kernel of ours shall wait on its streams
  KeptForOthers = 3   // its user has in-stream communicators, and another user has none
};

// Arguments of each kernel: addresses as this rank's GPU sees them. Launched with
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
  // Not 0: what is launched early behind it begins when it has ended, not when its waits have.
  std::uint32_t triggers_late = 0;
  std::uint32_t unused = 0;
  // The second word that ranks say to each other; the first is `what`.
  std::uint32_t count_and_identity = 0;

  // count is there already. what_it_is: InStreamShape::what().
  constexpr void say(std::uint32_t what_it_is, std::uint32_t identity) {
    what = what_it_is | identity << kInStreamWhatBits;
    count_and_identity = count | identity >> (32 - kInStreamWhatBits) << kInStreamCountBits;
  }
  constexpr std::uint32_t identity() const {
    return what >> kInStreamWhatBits | count_and_identity >> kInStreamCountBits
                                                                 << (32 - kInStreamWhatBits);
  }
};
// Whether two ranks said the same, but for the identity.
constexpr bool is_same_but_for_identity(std::uint32_t what, std::uint32_t count_and_identity,
                                        std::uint32_t other_what,
                                        std::uint32_t other_count_and_identity) {
  return ((what ^ other_what) << (32 - kInStreamWhatBits)) == 0 &&
         ((count_and_identity ^ other_count_and_identity) << (32 - kInStreamCountBits)) == 0;
}
static_assert(std::is_standard_layout_v<InStreamCall> && sizeof(InStreamCall) == 144 &&
              offsetof(InStreamCall, exchange) == 40 && offsetof(InStreamCall, count) == 112);

// One thread, put on a stream ahead of an operation whose predecessors other streams have: until
// their blocks have left, which would else be waited for by a whole grid.
inline constexpr const char* kInStreamWaitName = "arcomm_wait_behind";

}  // namespace arcomm
