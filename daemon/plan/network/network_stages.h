// How an operation's reductions are done by the kernels (kernels/args.h), given in which type its
// partial results travel (NetworkChoice::partials). Each says dtype, op and stage; whoever runs it
// adds pointers, count and, for the last one, the world's size as the divisor. Pure; any thread.
#pragma once

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"
#include "kernels/args.h"

namespace arcomm {

struct ReduceAs {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  ReduceStage stage = ReduceStage::Whole;
  friend bool operator==(const ReduceAs&, const ReduceAs&) = default;

  void tell(AllReduceArgs& args) const {
    args.dtype = dtype;
    args.op = op;
    args.stage = stage;
  }
};

// A node's ranks, in their order, to its partial result. Where the node has one rank and partial
// results travel in the dtype and without a codec, its input is the partial result already.
constexpr ReduceAs reduce_ranks(const NetworkQuestion& question, DType partials) {
  if (question.codec != Codec::None) return {question.dtype, question.op, ReduceStage::Partial};
  if (partials == accumulator_of(question.dtype)) {
    return {question.dtype, question.op, ReduceStage::Partial};
  }
  // Rounded where it leaves the node, but not divided.
  return {question.dtype, question.op == ReduceOp::Avg ? ReduceOp::Sum : question.op,
          ReduceStage::Whole};
}

// On the way round a ring: {what came, this node's partial result} to what goes on. What is encoded
// is decoded, added up and encoded anew.
constexpr ReduceAs reduce_on_the_way(const NetworkQuestion& question, DType partials) {
  const ReduceOp op = question.op == ReduceOp::Avg ? ReduceOp::Sum : question.op;
  if (question.codec != Codec::None) return {question.dtype, op, ReduceStage::Recode};
  return {partials, op, ReduceStage::Whole};
}

// Partial results, in the order of nodes (ring: {what came, this node's}), to the result.
constexpr ReduceAs reduce_partials(const NetworkQuestion& question, DType partials) {
  return {question.dtype, question.op,
          partials == accumulator_of(question.dtype) || question.codec != Codec::None
              ? ReduceStage::Final
              : ReduceStage::Whole};
}

// With a codec, where the result itself travels: partial results to encoded sums, and those, alone,
// to the result.
constexpr ReduceAs encode_result(const NetworkQuestion& question) {
  return {question.dtype, question.op, ReduceStage::Recode};
}
constexpr ReduceAs decode_result(const NetworkQuestion& question) {
  return {question.dtype, ReduceOp::Sum, ReduceStage::Final};
}

}  // namespace arcomm
