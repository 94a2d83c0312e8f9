// A CUDA driver of GPUs that are host memory, for programs that load libcuda.so.1: what `arctl
// bench` and `arctl check` call of it. A stream does at once what is put on it, and copies are not
// captured. There are two GPUs, or as many as ARCOMM_FAKE_GPU_COUNT says, up to three; they do not
// reach each other where ARCOMM_FAKE_APART is set, and MPS serves the process where ARCOMM_FAKE_MPS
// is.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fake_gpus/stream.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostGpus = 3;

int gpus() {
  const char* number = std::getenv("ARCOMM_FAKE_GPU_COUNT");
  return number != nullptr ? std::min(std::atoi(number), kMostGpus) : 2;
}

// Handles are these objects' addresses.
char contexts[kMostGpus], stream;
using Graph = std::vector<std::function<void()>>;
std::optional<Graph> captured;
struct Event {
  Clock::time_point at;
};

template <typename Handle>
Handle handle_of(void* object) {
  return static_cast<Handle>(object);
}

}  // namespace

extern "C" {

void fake_stream_do(std::function<void()>* work) {
  if (captured) {
    captured->push_back(std::move(*work));
  } else {
    (*work)();
  }
}

CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = gpus();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < gpus() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "a fake GPU", static_cast<std::size_t>(bytes));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  if (attribute != CU_DEVICE_ATTRIBUTE_MPS_ENABLED) return CUDA_ERROR_NOT_SUPPORTED;
  *value = std::getenv("ARCOMM_FAKE_MPS") != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice one, CUdevice other) {
  *can = one != other && std::getenv("ARCOMM_FAKE_APART") == nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = handle_of<CUcontext>(&contexts[device]);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuCtxDisablePeerAccess(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* place, std::size_t bytes) {
  *place = reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
  return *place != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree(CUdeviceptr place) {
  std::free(reinterpret_cast<void*>(place));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** place, std::size_t bytes, unsigned) {
  *place = std::malloc(bytes);
  return *place != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext to, CUdeviceptr, CUcontext from, std::size_t,
                           CUstream) {
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  return to != from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamCreate(CUstream* made, unsigned) {
  *made = handle_of<CUstream>(static_cast<void*>(&stream));
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream) {
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  captured.emplace();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = handle_of<CUgraph>(static_cast<void*>(new Graph(std::move(*captured))));
  captured.reset();
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* made, unsigned) {
  *made = handle_of<CUevent>(static_cast<void*>(new Event));
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  static_cast<Event*>(static_cast<void*>(event))->at = Clock::now();
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  const auto at = [](CUevent event) { return static_cast<Event*>(static_cast<void*>(event))->at; };
  *ms = std::chrono::duration<float, std::milli>(at(end) - at(begin)).count();
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* runnable, CUgraph graph, unsigned long long) {
  *runnable = handle_of<CUgraphExec>(
      static_cast<void*>(new Graph(*static_cast<Graph*>(static_cast<void*>(graph)))));
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec runnable, CUstream) {
  for (const auto& work : *static_cast<Graph*>(static_cast<void*>(runnable))) work();
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete static_cast<Graph*>(static_cast<void*>(graph));
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec runnable) {
  delete static_cast<Graph*>(static_cast<void*>(runnable));
  return CUDA_SUCCESS;
}

}  // extern "C"
