#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/launch/gpu_properties.h"

namespace arcomm {
namespace {

// What MPS gives this process of the current GPU; 0: all of them, or nobody knows.
std::uint32_t sms_of_process() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion("cuCtxGetExecAffinity", &address, 12000, cudaEnableDefault,
                                       &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess)
    return 0;
  CUexecAffinityParam affinity{};
  const auto ask = reinterpret_cast<decltype(&cuCtxGetExecAffinity)>(address);
  const bool known = ask(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT) == CUDA_SUCCESS;
  return known ? affinity.param.smCount.val : 0;
}

}  // namespace

std::uint32_t sms_of(int ordinal) {
  int sms = 0;
  cudaError_t known = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal);
  if (known == cudaSuccess) known = cudaSetDevice(ordinal);
  if (known != cudaSuccess) return 0;
  const std::uint32_t given = sms_of_process();
  return given == 0 ? static_cast<std::uint32_t>(sms)
                    : std::min(given, static_cast<std::uint32_t>(sms));
}

}  // namespace arcomm
