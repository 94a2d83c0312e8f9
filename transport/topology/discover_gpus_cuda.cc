#include <cuda_runtime_api.h>

#include <optional>

#include "transport/device/cuda/cuda_runtime.h"
#include "transport/topology/gpus.h"

namespace arcomm {
namespace {

int attribute_of_pair(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  if (cudaDeviceGetP2PAttribute(&value, attribute, from, to) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

Result<Gpu> look_at(int ordinal, int count) {
  cudaDeviceProp properties{};
  if (const cudaError_t read = cudaGetDeviceProperties(&properties, ordinal); read != cudaSuccess) {
    cudaGetLastError();
    return cuda_error(read, "reading a GPU's properties");
  }
  Gpu gpu{.ordinal = ordinal,
          .uuid = cuda_uuid_text(properties.uuid),
          .name = properties.name,
          .pci = {},
          .memory_bytes = properties.totalGlobalMem,
          .multiprocessors = properties.multiProcessorCount,
          .capability = properties.major * 10 + properties.minor,
          .under_mps = is_under_mps(ordinal),
          .links = {}};
  char pci[32] = "?";
  if (cudaDeviceGetPCIBusId(pci, sizeof(pci), ordinal) != cudaSuccess) cudaGetLastError();
  gpu.pci = pci;
  for (int peer = 0; peer < count; ++peer) {
    if (peer == ordinal) continue;
    gpu.links.push_back(
        {.to = peer,
         .reachable = attribute_of_pair(cudaDevP2PAttrAccessSupported, ordinal, peer) != 0,
         .atomics = attribute_of_pair(cudaDevP2PAttrNativeAtomicSupported, ordinal, peer) != 0,
         .performance_rank = attribute_of_pair(cudaDevP2PAttrPerformanceRank, ordinal, peer)});
  }
  return gpu;
}

}  // namespace

Result<std::vector<Gpu>> discover_gpus() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice) {  // first: without one the driver offers nothing at all
    cudaGetLastError();
    return std::vector<Gpu>();
  }
  std::optional<Error> why;
  if (counted != cudaSuccess) {
    cudaGetLastError();
    why = cuda_error(counted, "counting the GPUs");
    why->code = ErrorCode::Unavailable;
    if (why->reason == Reason::NotRunning) return *why;  // the driver offers nothing then either
  }
  if (const Result<const CudaDriver*> driver = cuda_driver(); !driver) return driver.error();
  if (why) return *why;
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Result<Gpu> gpu = look_at(ordinal, count);
    if (!gpu) return std::move(gpu).error();
    gpus.push_back(std::move(*gpu));
  }
  return gpus;
}

}  // namespace arcomm
