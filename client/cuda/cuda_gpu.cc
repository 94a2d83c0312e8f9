#include "client/cuda/cuda_gpu.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "client/cuda/cuda_chunk.h"
#include "client/cuda/cuda_mapping.h"
#include "client/cuda/cuda_memory_post.h"
#include "client/cuda/cuda_scope.h"
#include "client/cuda/post_kernel.h"

namespace arcomm::client {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{10};

std::string text_of(const CUuuid& uuid) {
  std::string text("GPU-");
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

class CudaGpus final : public Gpus {
 public:
  explicit CudaGpus(const CudaDriver& api) : api_(api) {}

  Result<std::shared_ptr<Gpu>> current(const std::string& otherwise_uuid) override {
    CUcontext context = nullptr;
    CUresult done = api_.cuCtxGetCurrent_(&context);
    if (done != CUDA_SUCCESS) return api_.failed(done, "asking for the current CUDA context");
    if (context == nullptr) {
      const Result<CUdevice> device = device_named(otherwise_uuid);
      if (!device) return device.error();
      const CaptureAllowed allowed(api_);
      done = api_.cuDevicePrimaryCtxRetain_(&context, *device);
      if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA context");
    }
    const std::lock_guard lock(mutex_);
    std::shared_ptr<CudaGpu>& gpu = gpus_[context];
    if (!gpu) {
      Result<std::shared_ptr<CudaGpu>> made = CudaGpu::create(api_, context);
      if (!made) {
        gpus_.erase(context);
        return std::move(made).error();
      }
      gpu = std::move(*made);
    }
    return std::shared_ptr<Gpu>(gpu);
  }

  std::vector<std::string> visible() override {
    std::vector<std::string> uuids;
    int count = 0;
    if (api_.cuDeviceGetCount_(&count) != CUDA_SUCCESS) return uuids;
    for (int i = 0; i < count; ++i) {
      CUdevice device = 0;
      CUuuid its{};
      if (api_.cuDeviceGet_(&device, i) == CUDA_SUCCESS &&
          api_.cuDeviceGetUuid_(&its, device) == CUDA_SUCCESS)
        uuids.push_back(text_of(its));
    }
    return uuids;
  }
  // Where MPS gives this process a part of the SMs, blocks that wait for other GPUs may not find
  // the room that the daemon counts on.
  InStreamHindrance in_stream_hindrance() const override {
    const char* const part = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const bool is_part = part != nullptr && std::string_view(part) != "100";
    return is_part ? InStreamHindrance::SmLimit : InStreamHindrance::None;
  }

 private:
  Result<CUdevice> device_named(const std::string& uuid) {
    int count = 0;
    const CUresult counted = api_.cuDeviceGetCount_(&count);
    if (counted != CUDA_SUCCESS) return api_.failed(counted, "counting GPUs");
    for (int i = 0; i < count; ++i) {
      CUdevice device = 0;
      CUuuid its{};
      CUresult done = api_.cuDeviceGet_(&device, i);
      if (done == CUDA_SUCCESS) done = api_.cuDeviceGetUuid_(&its, device);
      if (done != CUDA_SUCCESS) return api_.failed(done, "asking a GPU for its UUID");
      if (uuid.rfind("GPU-", 0) != 0 || text_of(its) == uuid) return device;
    }
    return error(ErrorCode::NotFound, Reason::BadValue, "of the ", count,
                 " GPUs that this process sees none is ", uuid,
                 ": does CUDA_VISIBLE_DEVICES hide it?");
  }

  const CudaDriver& api_;
  std::mutex mutex_;
  std::map<CUcontext, std::shared_ptr<CudaGpu>> gpus_;
};

}  // namespace

Result<Gpus*> load_gpus(const char* driver) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string, Gpus*>;  // never destroyed, as what is in it
  const std::lock_guard lock(mutex);
  if (const auto found = loaded->find(driver); found != loaded->end()) return found->second;
  Result<CudaDriver> api = CudaDriver::load(driver);
  Status ready = api ? api->start() : Status(std::move(api).error());
  if (!ready) {
    Error why = std::move(ready).error();
    why.message =
        "the daemon's session is on GPUs: " + why.message + "; or attach with device host:0";
    return why;
  }
  Gpus* const gpus = new CudaGpus(*new CudaDriver(*api));
  loaded->emplace(driver, gpus);
  return gpus;
}

Result<std::shared_ptr<CudaGpu>> CudaGpu::create(const CudaDriver& api, CUcontext context) {
  std::shared_ptr<CudaGpu> gpu(new CudaGpu(api, context));
  ARC_RETURN_IF_ERROR(gpu->set_up());
  return gpu;
}

Status CudaGpu::set_up() {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  CUresult done = api_.cuCtxGetDevice_(&device_);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking a CUDA context for its GPU");
  CUuuid uuid{};
  done = api_.cuDeviceGetUuid_(&uuid, device_);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking a GPU for its UUID");
  uuid_ = text_of(uuid);
  CUmodule module = nullptr;
  done = api_.cuModuleLoadData_(&module, post_kernel_image());
  if (done != CUDA_SUCCESS) {
    return api_.failed(done, "loading the post kernel (it is built for GPUs of sm_80 and later)");
  }
  const Result<CudaKernel> post = load_kernel(api_, module, kPostKernelName);
  if (!post) return post.error();
  post_ = *post;
  can_post_by_memory_ = can_post_by_memory(api_, device_);
  constexpr int kHighest = -100;  // the driver takes the nearest that there is
  done = api_.cuStreamCreateWithPriority_(&stream_, CU_STREAM_NON_BLOCKING, kHighest);
  if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA stream");
  done = api_.cuEventCreate_(&copied_, CU_EVENT_DISABLE_TIMING);
  if (done != CUDA_SUCCESS) return api_.failed(done, "creating a CUDA event");
  done = api_.cuMemHostAlloc_(&staging_, kMailboxWithNotesBytes, CU_MEMHOSTALLOC_PORTABLE);
  if (done != CUDA_SUCCESS) return api_.failed(done, "allocating pinned memory");
  return {};
}

Result<GpuRange> CudaGpu::range_of(const void* address) {
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  CUmemorytype type{};
  int is_managed = 0, ordinal = -1, has_ipc_handle = 0;
  unsigned long long allocation = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* answers[] = {&type, &is_managed, &ordinal, &allocation, &has_ipc_handle};
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  CUresult done = api_.cuPointerGetAttributes_(std::size(asked), asked, answers, pointer);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking CUDA where a pointer points");
  if (type != CU_MEMORYTYPE_DEVICE) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, address,
                 " is not a GPU's memory: device pointer expected; attach with device host:0 for "
                 "host memory");
  }
  if (is_managed != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, address,
                 " is managed memory, which no other process can reach: use cudaMalloc or "
                 "arcMemAlloc");
  }
  // CUDA does not tell its range in another GPU's context.
  if (ordinal != this->ordinal()) return GpuRange{.base = pointer, .bytes = 0, .ordinal = ordinal};
  // Not the attributes RANGE_START_ADDR and RANGE_SIZE: of mapped memory they tell the addresses
  // that were reserved, where this tells what is mapped there.
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  done = api_.cuMemGetAddressRange_(&base, &bytes, pointer);
  if (done != CUDA_SUCCESS) {
    Error why = api_.failed(done, "asking CUDA for the allocation around a pointer");
    why.code = ErrorCode::InvalidArgument;
    return why;
  }
  return GpuRange{.base = static_cast<std::uintptr_t>(base),
                  .bytes = bytes,
                  .allocation = allocation,
                  .ordinal = ordinal,
                  .is_mapped = has_ipc_handle == 0};
}

Result<std::unique_ptr<GpuChunk>> CudaGpu::hold_chunk(const void* address) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return CudaChunk::hold(api_, context_, address);
}

bool CudaGpu::is_in_place(const GpuChunk& chunk) {
  const CudaScope scope(api_, context_);
  return scope.entered() && static_cast<const CudaChunk&>(chunk).is_in_place();
}

Result<GpuChunkExport> CudaGpu::export_chunk(const GpuChunk& chunk) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return static_cast<const CudaChunk&>(chunk).share();
}

Result<GpuExport> CudaGpu::export_memory(const GpuRange& range) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  GpuExport out;
  CUipcMemHandle handle{};
  const CUresult as_ipc = api_.cuIpcGetMemHandle_(&handle, range.base);
  if (as_ipc == CUDA_SUCCESS) {
    static_assert(sizeof(handle) == sizeof(*out.ipc_handle));
    std::memcpy(out.ipc_handle.emplace().data(), &handle, sizeof(handle));
    return out;
  }
  return error(
      ErrorCode::FailedPrecondition, Reason::Unsupported, "the allocation at ",
      reinterpret_cast<void*>(range.base), " (", range.bytes,
      " bytes) cannot be shared with the daemon (cuIpcGetMemHandle: ", api_.name_of(as_ipc),
      "). Memory of cudaMalloc or arcMemAlloc can; with PyTorch set "
      "PYTORCH_CUDA_ALLOC_CONF=backend:native");
}

Result<std::unique_ptr<GpuMapping>> CudaGpu::import_memory(int fd, std::uint64_t bytes) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return ImportedMemory::create(api_, context_, device_, fd, bytes);
}

Result<std::unique_ptr<GpuMapping>> CudaGpu::map_host(void* memory, std::size_t bytes) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return HostMemoryOnGpu::create(api_, context_, memory, bytes);
}

Result<bool> CudaGpu::is_capturing(void* stream) {
  // The legacy default stream cannot be captured, and may not even be asked while another one is.
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return false;
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  CUstreamCaptureStatus state{};
  const CUresult done = api_.cuStreamIsCapturing_(static_cast<CUstream>(stream), &state);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking whether the stream is captured");
  return state != CU_STREAM_CAPTURE_STATUS_NONE;
}

Status CudaGpu::post(const GpuPost& post, void* stream) {
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  GpuPost copy = post;
  const CUresult done = launch(api_, post_, 1, 1, stream, &copy);
  if (done == CUDA_SUCCESS) return {};
  Error why = api_.failed(done, "launching the post kernel on the caller's stream");
  why.message += ": is it a stream of ";
  why.message += uuid_;
  why.message += ", and did no kernel before it fail?";
  return why;
}

Status CudaGpu::post_by_memory(const MemoryPost& start, void* stream) {
  if (!can_post_by_memory_) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, uuid_,
                 " has no 64-bit stream memory operations: unset ARCOMM_POST");
  }
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  const CUresult done = client::post_by_memory(api_, start, static_cast<CUstream>(stream));
  if (done == CUDA_SUCCESS) return {};
  Error why = api_.failed(done, "putting memory operations into the caller's stream");
  why.message += ": is it a stream of " + uuid_ + ", and did no kernel before it fail?";
  return why;
}

Result<const InStreamKernels*> CudaGpu::load_in_stream(int image_fd) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  const std::lock_guard lock(in_stream_mutex_);
  for (const auto& loaded : in_stream_) {
    if (loaded->is_of(image_fd)) return loaded.get();
  }
  Result<std::unique_ptr<CudaInStreamKernels>> loaded = CudaInStreamKernels::load(api_, image_fd);
  if (!loaded) return std::move(loaded).error();
  in_stream_.push_back(std::move(*loaded));
  return in_stream_.back().get();
}

Status CudaGpu::launch_in_stream(const InStreamKernels& kernels, const InStreamShape& shape,
                                 DType dtype, ReduceOp op, const InStreamCall& call,
                                 bool waits_behind, void* stream) {
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  const auto& loaded = static_cast<const CudaInStreamKernels&>(kernels);
  InStreamCall copy = call;
  CUresult done = CUDA_SUCCESS;
  if (waits_behind) done = launch(api_, loaded.waiting(), 1, 1, stream, &copy);
  if (done == CUDA_SUCCESS) {
    done = launch(api_, loaded.find(shape.algorithm, dtype, op), shape.blocks,
                  kInStreamBlockThreads, stream, &copy);
  }
  if (done == CUDA_SUCCESS) return {};
  Error why = api_.failed(done, "launching the operation on the caller's stream");
  why.message += ": is it a stream of " + uuid_ + ", and did no kernel before it fail?";
  return why;
}

// One thread at a time, so that a copy that hangs keeps the staging memory to itself.
Status CudaGpu::until_copied(Clock::time_point deadline) {
  while (copying_) {
    const CUresult done = api_.cuEventQuery_(copied_);
    if (done == CUDA_SUCCESS) {
      copying_ = false;
    } else if (done != CUDA_ERROR_NOT_READY) {
      return api_.failed(done, "copying a word from or to the GPU (had a kernel failed before?)");
    } else if (Clock::now() >= deadline) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, uuid_,
                   " did not copy a few words in time: it is busy or stuck");
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return {};
}

Status CudaGpu::read(void* to, const void* from, std::size_t bytes,
                     std::chrono::nanoseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::lock_guard lock(mutex_);
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  ARC_RETURN_IF_ERROR(until_copied(deadline));
  CUresult done =
      api_.cuMemcpyDtoHAsync_(staging_, reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  if (done == CUDA_SUCCESS) done = api_.cuEventRecord_(copied_, stream_);
  if (done != CUDA_SUCCESS) return api_.failed(done, "copying words from the GPU");
  copying_ = true;
  ARC_RETURN_IF_ERROR(until_copied(deadline));
  std::memcpy(to, staging_, bytes);
  return {};
}

Status CudaGpu::write(void* to, const void* from, std::size_t bytes,
                      std::chrono::nanoseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::lock_guard lock(mutex_);
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  ARC_RETURN_IF_ERROR(until_copied(deadline));
  std::memcpy(staging_, from, bytes);
  CUresult done =
      api_.cuMemcpyHtoDAsync_(reinterpret_cast<CUdeviceptr>(to), staging_, bytes, stream_);
  if (done == CUDA_SUCCESS) done = api_.cuEventRecord_(copied_, stream_);
  if (done != CUDA_SUCCESS) return api_.failed(done, "copying words to the GPU");
  copying_ = true;
  return until_copied(deadline);
}

}  // namespace arcomm::client
