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
inline constexpr std::uint32_t kInStreamAbi = 11;

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

  // What ranks compare of an operation beside its count. Below kInStreamWhatBits. Its blocks are
  // not in it: they follow from all that is, by one table.
  std::uint32_t what(DType dtype, ReduceOp op, Codec codec, Collective collective) const {
    return static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(op) << 4 |
           static_cast<std::uint32_t>(algorithm) << 7 | static_cast<std::uint32_t>(codec) << 10 |
           static_cast<std::uint32_t>(collective) << 13;
  }
};

// What ranks say to each other of an operation: what it is, how many elements it has, and, in the
// bits that these leave, its identity (captured_identity.h).
inline constexpr std::uint32_t kInStreamWhatBits = 15, kInStreamCountBits = 31;
inline constexpr std::uint32_t kInStreamIdentityBits = 64 - kInStreamWhatBits - kInStreamCountBits;
static_assert(kIdentityBits <= kInStreamIdentityBits);
// Elements of the longest operation.
inline constexpr std::uint64_t kMostInStreamCount = (std::uint64_t{1} << kInStreamCountBits) - 1;

// What is in the images beside kInStreamWaitName, and under which names: sets, by bit_of(). Of
// what is not in them no row of a launch table may be in-stream.
inline constexpr std::uint16_t kInStreamDTypes =
    bit_of(DType::Float16) | bit_of(DType::BFloat16) | bit_of(DType::Float32);
inline constexpr std::uint8_t kInStreamCollectives = bit_of(Collective::AllReduce);
constexpr bool has_in_stream_kernel(DType dtype) {
  return (kInStreamDTypes & bit_of(dtype)) != 0;
}
// A codec has a kernel for each type, which takes sum and avg, and one algorithm for each number of
// ranks: one hop between two, else two hops.
inline constexpr std::uint8_t kInStreamCodecOps = bit_of(ReduceOp::Sum) | bit_of(ReduceOp::Avg);
constexpr InStreamAlgorithm coded_algorithm(std::uint32_t ranks) {
  return ranks == 2 ? InStreamAlgorithm::PairLl128 : InStreamAlgorithm::TwoShotLl128;
}
// That an algorithm has kernels for.
constexpr std::uint8_t in_stream_codecs(InStreamAlgorithm algorithm) {
  const bool is_coded =
      algorithm == InStreamAlgorithm::PairLl128 || algorithm == InStreamAlgorithm::TwoShotLl128;
  return is_coded ? std::uint8_t{(1U << kCodecs) - 1} : bit_of(Codec::None);
}
// InStreamShape::what() has room for so many.
static_assert(kDTypes <= 1 << 4 && kReduceOps <= 1 << 3 && kInStreamAlgorithms <= 1 << 3 &&
              kCodecs <= 1 << 3 && kInStreamCollectives < 1U << (1 << 2));

struct InStreamKernel {
  InStreamAlgorithm algorithm;
  DType dtype;
  ReduceOp op;
};
// Those of a codec, or those that need none: what one image has. A codec's kernel takes both of its
// operations, and so stands there twice.
std::vector<InStreamKernel> all_in_stream_kernels(Codec codec);
std::string in_stream_kernel_name(InStreamAlgorithm algorithm, DType dtype, ReduceOp op,
                                  Codec codec);

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
  // As InStreamShape::what() has put them there.
  constexpr ReduceOp op() const { return static_cast<ReduceOp>(what >> 4 & 7U); }
  constexpr Codec codec() const { return static_cast<Codec>(what >> 10 & 7U); }
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
