#include "client/cuda/cuda_gpu.h"

#include <bit>
#include <cstdio>
#include <utility>

#include "client/cuda/cuda_chunk.h"
#include "client/cuda/cuda_mapping.h"
#include "client/cuda/cuda_scope.h"

namespace arcomm::client {
namespace {

// What a launch on the caller's stream failed with.
Error on_callers_stream(Error why, const std::string& uuid) {
  why.message += ": is it a stream of " + uuid + ", and did no kernel before it fail?";
  return why;
}

}  // namespace

Result<std::string> CudaGpu::uuid_of(const CudaDriver& api, CUdevice device) {
  CUuuid uuid{};
  const CUresult done = api.cuDeviceGetUuid_(&uuid, device);
  if (done != CUDA_SUCCESS) return api.failed(done, "asking a GPU for its UUID");
  std::string text("GPU-");
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

Result<std::shared_ptr<CudaGpu>> CudaGpu::create(const CudaDriver& api, CUcontext context) {
  std::shared_ptr<CudaGpu> gpu(new CudaGpu(api, context));
  ARC_RETURN_IF_ERROR(gpu->set_up());
  return gpu;
}

Status CudaGpu::set_up() {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  const CUresult done = api_.cuCtxGetDevice_(&device_);
  if (done != CUDA_SUCCESS) return api_.failed(done, "asking a CUDA context for its GPU");
  Result<std::string> uuid = uuid_of(api_, device_);
  if (!uuid) return std::move(uuid).error();
  uuid_ = std::move(*uuid);
  ARC_RETURN_IF_ERROR(post_.load(device_));
  return copies_.set_up(uuid_);
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

Result<MemoryChunk> CudaGpu::export_chunk(const GpuChunk& chunk) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return static_cast<const CudaChunk&>(chunk).share();
}

Result<GpuIpcHandle> CudaGpu::export_memory(const GpuRange& range) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  CUipcMemHandle handle{};
  const CUresult as_ipc = api_.cuIpcGetMemHandle_(&handle, range.base);
  if (as_ipc == CUDA_SUCCESS) return std::bit_cast<GpuIpcHandle>(handle);
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
  const CUresult done = post_.post(post, static_cast<CUstream>(stream));
  if (done == CUDA_SUCCESS) return {};
  return on_callers_stream(api_.failed(done, "launching the post kernel on the caller's stream"),
                           uuid_);
}

Status CudaGpu::post_by_memory(const MemoryPost& start, void* stream) {
  if (!post_.can_post_by_memory()) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, uuid_,
                 " has no 64-bit stream memory operations: unset ARCOMM_POST");
  }
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  const CUresult done = post_.post_by_memory(start, static_cast<CUstream>(stream));
  if (done == CUDA_SUCCESS) return {};
  return on_callers_stream(api_.failed(done, "putting memory operations into the caller's stream"),
                           uuid_);
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

Status CudaGpu::load_codec(const InStreamKernels& kernels, Codec codec) {
  // Known to be one of in_stream_, which are changed under the lock alone.
  auto& loaded = const_cast<CudaInStreamKernels&>(static_cast<const CudaInStreamKernels&>(kernels));
  if (loaded.has_codec(codec)) return {};
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  const std::lock_guard lock(in_stream_mutex_);
  return loaded.load_codec(api_, codec);
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
    done = launch(api_, loaded.find(shape.algorithm, dtype, op, call.codec()), shape.blocks,
                  kInStreamBlockThreads, stream, &copy);
  }
  if (done == CUDA_SUCCESS) return {};
  return on_callers_stream(api_.failed(done, "launching the operation on the caller's stream"),
                           uuid_);
}

Status CudaGpu::copy(void* to, const void* from, std::uint64_t bytes, std::uint32_t* left,
                     void* stream) {
  const CurrentContext current(api_, context_);
  ARC_RETURN_IF_ERROR(current.entered());
  CUresult done = api_.cuMemcpyDtoDAsync_(reinterpret_cast<CUdeviceptr>(to),
                                          reinterpret_cast<CUdeviceptr>(from), bytes,
                                          static_cast<CUstream>(stream));
  if (done == CUDA_SUCCESS && left != nullptr)
    done = post_.count(left, static_cast<CUstream>(stream));
  if (done == CUDA_SUCCESS) return {};
  return on_callers_stream(api_.failed(done, "copying in the caller's stream"), uuid_);
}

Status CudaGpu::read(void* to, const void* from, std::size_t bytes,
                     std::chrono::nanoseconds timeout) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return copies_.read(to, from, bytes, timeout);
}

Status CudaGpu::write(void* to, const void* from, std::size_t bytes,
                      std::chrono::nanoseconds timeout) {
  const CudaScope scope(api_, context_);
  ARC_RETURN_IF_ERROR(scope.entered());
  return copies_.write(to, from, bytes, timeout);
}

}  // namespace arcomm::client
