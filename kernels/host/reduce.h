// The vectorised reductions, by family of element types; launch.cc picks one. Any thread;
// disjoint ranges at once.
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace arcomm::host {

struct ReduceCall {
  const AllReduceArgs& args;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  // Write around the caches where that pays: out of place, all outputs alike within their
  // cache lines.
  bool non_temporal = false;

  // What a partial result leaves out is only the division.
  ReduceOp op() const {
    return args.stage == ReduceStage::Partial && args.op == ReduceOp::Avg ? ReduceOp::Sum : args.op;
  }
};

void reduce_half(const ReduceCall& call);     // Float16, BFloat16
void reduce_float(const ReduceCall& call);    // Float32, Float64
void reduce_integer(const ReduceCall& call);  // the rest
// What codec_serves() says, of whole blocks, with stores as usual: Float16, BFloat16, Float32.
// Where a stage has encoded blocks in the place of elements, a pointer is element 0's block's.
void reduce_coded(const ReduceCall& call);

}  // namespace arcomm::host
