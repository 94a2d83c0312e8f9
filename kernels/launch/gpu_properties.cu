#include <cuda_runtime_api.h>

#include "kernels/launch/gpu_properties.h"

namespace arcomm {

std::uint32_t sms_of(int ordinal) {
  int sms = 0;
  const cudaError_t known = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal);
  return known == cudaSuccess ? static_cast<std::uint32_t>(sms) : 0;
}

}  // namespace arcomm
