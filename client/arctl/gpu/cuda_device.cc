#include "client/arctl/gpu/cuda_device.h"

#include <mutex>
#include <optional>
#include <utility>

namespace arcomm::arctl {
namespace {

CUdeviceptr address_of(const std::byte* place) {
  return reinterpret_cast<CUdeviceptr>(place);
}

// Once per process, started.
Result<const CudaDriver*> started_driver() {
  static std::mutex mutex;
  static std::optional<CudaDriver> loaded;
  const std::lock_guard lock(mutex);
  if (loaded) return &*loaded;
  Result<CudaDriver> driver = CudaDriver::load();
  Status ready = driver ? driver->start() : Status(std::move(driver).error());
  if (ready) return &loaded.emplace(*driver);
  Error why = std::move(ready).error();
  why.code = ErrorCode::FailedPrecondition;
  why.message += "; --device host needs none";
  return why;
}

}  // namespace

Result<GpusSeen> see_gpus() {
  const Result<const CudaDriver*> started = started_driver();
  if (!started) return started.error();
  const CudaDriver& cuda = **started;
  GpusSeen seen;
  ARC_RETURN_IF_ERROR(cuda.checked(cuda.cuDeviceGetCount_(&seen.count), "counting GPUs"));
  if (seen.count == 0) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "this process sees no GPU: look at nvidia-smi -L and CUDA_VISIBLE_DEVICES");
  }
  seen.under_mps = true;
  for (int ordinal = 0; ordinal < seen.count; ++ordinal) {
    CUdevice device = 0;
    int enabled = 0;  // and stays so where a driver does not know what is asked
    ARC_RETURN_IF_ERROR(cuda.checked(cuda.cuDeviceGet_(&device, ordinal), "taking a GPU"));
    cuda.cuDeviceGetAttribute_(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
    seen.under_mps = seen.under_mps && enabled != 0;
  }
  return seen;
}

Result<std::unique_ptr<GpuDevice>> open_gpu(int ordinal) {
  const Result<const CudaDriver*> cuda = started_driver();
  if (!cuda) return cuda.error();
  Result<std::unique_ptr<CudaDevice>> device = CudaDevice::open(**cuda, ordinal);
  if (!device) return std::move(device).error();
  return std::unique_ptr<GpuDevice>(std::move(*device));
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(const CudaDriver& cuda, int ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(cuda));
  ARC_RETURN_IF_ERROR(device->set_up(ordinal));
  return device;
}

Status CudaDevice::set_up(int ordinal) {
  int count = 0;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDeviceGetCount_(&count), "counting GPUs"));
  if (ordinal < 0 || ordinal >= count) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, "GPU ", ordinal,
                 " is wanted, and this process sees ", count,
                 " (numbers from 0 on): ask for fewer ranks (-r), name others with --gpus, or look "
                 "at CUDA_VISIBLE_DEVICES");
  }
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDriverGetVersion_(&driver_version_),
                                    "asking for the CUDA driver's version"));
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDeviceGet_(&device_, ordinal), "taking a GPU"));
  char name[128] = {};
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDeviceGetName_(name, sizeof(name) - 1, device_),
                                    "asking a GPU for its name"));
  name_ = name;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDevicePrimaryCtxRetain_(&context_, device_),
                                    "creating a CUDA context"));
  ARC_RETURN_IF_ERROR(
      cuda_.checked(cuda_.cuCtxSetCurrent_(context_), "making a CUDA context current"));
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuStreamCreate_(&stream_, CU_STREAM_NON_BLOCKING),
                                    "creating a CUDA stream"));
  for (CUevent* event : {&begin_, &end_}) {
    ARC_RETURN_IF_ERROR(
        cuda_.checked(cuda_.cuEventCreate_(event, CU_EVENT_DEFAULT), "creating a CUDA event"));
  }
  return {};
}

Result<std::byte*> CudaDevice::allocate(std::uint64_t bytes) {
  CUdeviceptr place = 0;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuMemAlloc_(&place, bytes), "allocating GPU memory"));
  return reinterpret_cast<std::byte*>(place);
}

Result<std::byte*> CudaDevice::allocate_pinned(std::uint64_t bytes) {
  void* place = nullptr;
  ARC_RETURN_IF_ERROR(
      cuda_.checked(cuda_.cuMemHostAlloc_(&place, bytes, 0), "allocating pinned memory"));
  return static_cast<std::byte*>(place);
}

Status CudaDevice::fill(std::byte* to, unsigned char value, std::uint64_t bytes) {
  return cuda_.checked(cuda_.cuMemsetD8Async_(address_of(to), value, bytes, stream_),
                       "filling GPU memory");
}

Status CudaDevice::upload(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return cuda_.checked(cuda_.cuMemcpyHtoDAsync_(address_of(to), from, bytes, stream_),
                       "copying to the GPU");
}

Status CudaDevice::copy(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return cuda_.checked(cuda_.cuMemcpyDtoDAsync_(address_of(to), address_of(from), bytes, stream_),
                       "copying on the GPU");
}

Status CudaDevice::download(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return cuda_.checked(cuda_.cuMemcpyDtoHAsync_(to, address_of(from), bytes, stream_),
                       "copying from the GPU");
}

Status CudaDevice::record(Mark mark) {
  return cuda_.checked(cuda_.cuEventRecord_(mark == Mark::Begin ? begin_ : end_, stream_),
                       "recording a CUDA event");
}

Result<double> CudaDevice::between_us() {
  float ms = 0;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.event_elapsed_time(&ms, begin_, end_),
                                    "asking for the time between two CUDA events"));
  return static_cast<double>(ms) * 1e3;
}

Result<std::unique_ptr<GpuGraph>> CudaDevice::capture(const std::function<Status()>& work) {
  // Relaxed: libraries' own threads may allocate meanwhile.
  ARC_RETURN_IF_ERROR(
      cuda_.checked(cuda_.cuStreamBeginCapture_(stream_, CU_STREAM_CAPTURE_MODE_RELAXED),
                    "beginning to capture the stream"));
  Status worked = work();
  CUgraph graph = nullptr;
  Status ended =
      cuda_.checked(cuda_.cuStreamEndCapture_(stream_, &graph), "capturing a CUDA graph");
  ARC_RETURN_IF_ERROR(std::move(worked));
  ARC_RETURN_IF_ERROR(std::move(ended));
  CUgraphExec runnable = nullptr;
  Status made =
      cuda_.checked(cuda_.cuGraphInstantiate_(&runnable, graph, 0), "making a CUDA graph runnable");
  cuda_.cuGraphDestroy_(graph);
  ARC_RETURN_IF_ERROR(std::move(made));
  return std::unique_ptr<GpuGraph>(new CudaGraph(cuda_, runnable, stream_));
}

Status CudaDevice::wait(Clock::time_point deadline) {
  for (;;) {
    const CUresult state = cuda_.cuStreamQuery_(stream_);
    if (state != CUDA_ERROR_NOT_READY) {
      return cuda_.checked(state, "waiting for the stream (a kernel on it failed)");
    }
    if (Clock::now() >= deadline) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                   "the stream has not finished in time: see `arctl diagnose`");
    }
  }
}

Result<std::unique_ptr<GpuPeerCopy>> CudaDevice::peer_copy(int other, std::uint64_t bytes) {
  CUdevice to = 0;
  ARC_RETURN_IF_ERROR(cuda_.checked(cuda_.cuDeviceGet_(&to, other), "taking the neighbour's GPU"));
  auto copy = std::make_unique<CudaPeerCopy>(cuda_, context_, stream_);
  ARC_RETURN_IF_ERROR(copy->open(device_, to, bytes));
  return std::unique_ptr<GpuPeerCopy>(std::move(copy));
}

CudaGraph::~CudaGraph() {
  cuda_.cuGraphExecDestroy_(graph_);
}

Status CudaGraph::launch() {
  return cuda_.checked(cuda_.cuGraphLaunch_(graph_, stream_), "launching a CUDA graph");
}

}  // namespace arcomm::arctl
