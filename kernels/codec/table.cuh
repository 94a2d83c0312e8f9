// The wire formats that launched kernels know: from a codec, a type and an operation that are known
// at run time to what the algorithms on lines are compiled for. A format is a row in with_codec().
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/codec/plain.cuh"
#include "kernels/device/dispatch.cuh"

namespace arcomm::device {

// visit.operator()<Codec>(): the format of that number (proto/codec.h), for elements of Format.
// cudaErrorNotSupported where no kernel knows it.
template <typename Format, typename Visit>
cudaError_t with_codec(Codec codec, Visit&& visit) {
  switch (codec) {
    case Codec::None:
      return visit.template operator()<PlainCodec<Format>>();
    case Codec::Fp8:
    case Codec::Q8:
    case Codec::Q6:
    case Codec::Q4:
    case Codec::Q8Rotated:
    case Codec::Q6Rotated:
    case Codec::Q4Rotated:  // planner and launcher have refused it; a new codec is named here
      break;
  }
  return cudaErrorNotSupported;
}

// visit.operator()<Codec, kOp>(). cudaErrorNotSupported: the format does not serve them.
template <typename Visit>
cudaError_t with_line_kernel(Codec codec, DType dtype, ReduceOp op, Visit&& visit) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return with_codec<Format>(codec, [&]<typename C>() {
      if constexpr (C::serves(kOp)) {
        return visit.template operator()<C, kOp>();
      } else {
        return cudaErrorNotSupported;
      }
    });
  });
}

// The same for every format that serves them, until one fails.
template <typename Visit>
cudaError_t for_each_codec(DType dtype, ReduceOp op, Visit&& visit) {
  for (unsigned codec = 0; codec < kCodecs; ++codec) {
    const cudaError_t done = with_line_kernel(static_cast<Codec>(codec), dtype, op, visit);
    if (done != cudaSuccess && done != cudaErrorNotSupported) return done;
  }
  return cudaSuccess;
}

}  // namespace arcomm::device
