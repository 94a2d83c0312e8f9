// What one reduction on the host is, as far as a kernel cares: where the inputs and outputs lie,
// and what to do with them. A plain value: the caller keeps what the pointers name alive. No
// process, no rank, no lock. Offsets and counts are elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "proto/types.h"

namespace arcomm {

// A reduction over several nodes is done in two stages, so that a result is rounded once. With a
// codec a partial result is encoded blocks (codec/format.h, coded_bytes()) in the place of
// accumulators.
enum class ReduceStage : std::uint8_t {
  Whole,    // inputs and outputs are elements of the dtype
  Partial,  // outputs are accumulators (accumulator_of), not yet divided and not yet rounded
  Final,    // inputs are accumulators, outputs elements: divided where it is avg, rounded once
  Recode,   // with a codec: inputs are blocks, so is the one output: divided, and encoded once more
};

// What a Partial writes: Float32 for Float16 and BFloat16, the type itself for all others.
constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16 ? DType::Float32 : dtype;
}

// All inputs are combined in their order, and the result goes to every output. Pointers are aligned
// to what lies there: an element or an accumulator. An output is one of the inputs (in place) or
// does not touch any other range; ranges that overlap in another way give unspecified values (never
// an access outside of the ranges). In place takes inputs and outputs of one size, so the Partial
// and Final of 16-bit types have none.
struct AllReduceArgs {
  const void* inputs[kMaxRanks] = {};
  void* outputs[kMaxRanks] = {};
  std::uint64_t count = 0;
  std::uint32_t num_inputs = 0;   // 1 .. kMaxRanks
  std::uint32_t num_outputs = 0;  // 1 .. kMaxRanks
  std::uint32_t divisor = 1;      // of avg: the ranks of the whole world; 1 .. 2^31 - 1
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;  // another one: codec_serves(codec, op, dtype)
  ReduceStage stage = ReduceStage::Whole;

  // Between ranks that are all here: an input and an output of each.
  static AllReduceArgs among(std::uint32_t ranks, std::uint64_t count, DType dtype,
                             ReduceOp op = ReduceOp::Sum) {
    AllReduceArgs args;
    args.count = count;
    args.num_inputs = args.num_outputs = args.divisor = ranks;
    args.dtype = dtype;
    args.op = op;
    return args;
  }
};
static_assert(std::is_trivially_copyable_v<AllReduceArgs>);

}  // namespace arcomm
