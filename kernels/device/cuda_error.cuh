// From the host: a failure of the CUDA runtime as an Error that says during what it came.
#pragma once

#include <cuda_runtime_api.h>

#include "proto/status.h"

namespace arcomm::device {

inline Error cuda_error(cudaError_t failure, const char* what) {
  return error(ErrorCode::Internal, Reason::None, what, ": ", cudaGetErrorName(failure), " (",
               cudaGetErrorString(failure), ")");
}

}  // namespace arcomm::device
