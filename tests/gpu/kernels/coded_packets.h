// What LL128 packets of codes make of elements, without the lines that carry them: one warp for a
// packet, and all ranks' inputs on one GPU. The results on the way of one hop of two ranks, of one
// hop of any, and of two hops, whose owner encodes once more.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "proto/types.h"

namespace arcomm::gpu {

struct CodedSum {
  Codec codec = Codec::Fp8;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;  // or Avg
  const void* inputs[2] = {};   // of two ranks
  void* pair = nullptr;         // of `count` elements each
  void* one_hop = nullptr;
  void* two_hops = nullptr;
  std::uint64_t count = 0;
  bool vectors = false;  // all of them lie on multiples of 16 bytes
};

// On the current GPU. cudaErrorNotSupported: no codec, or none for this type or operation.
cudaError_t run(const CodedSum& sum, cudaStream_t stream);

}  // namespace arcomm::gpu
