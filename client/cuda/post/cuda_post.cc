#include "client/cuda/post/cuda_post.h"

#include <array>
#include <cstddef>

extern "C" {
// Aligned as the driver reads it; the definition, made by the build of post.cu, says nothing.
extern const unsigned char kArcommPostFatbin[] __attribute__((aligned(16)));
}
#include <arcomm_post_fatbin.inc>

namespace arcomm::client {
namespace {

// In the order in which they are to happen.
class Batch {
 public:
  // Until the 32 bits there have come so far; modulo 2^32.
  void wait_until(const void* address, std::uint32_t value) {
    CUstreamBatchMemOpParams& one = next(CU_STREAM_MEM_OP_WAIT_VALUE_32);
    one.waitValue.address = reinterpret_cast<CUdeviceptr>(address);
    one.waitValue.value = value;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  void write(const std::uint32_t* address, std::uint32_t value) {
    CUstreamBatchMemOpParams& one = next(CU_STREAM_MEM_OP_WRITE_VALUE_32);
    one.writeValue.address = reinterpret_cast<CUdeviceptr>(address);
    one.writeValue.value = value;
  }
  void write(const void* address, std::uint64_t value) {
    CUstreamBatchMemOpParams& one = next(CU_STREAM_MEM_OP_WRITE_VALUE_64);
    one.writeValue.address = reinterpret_cast<CUdeviceptr>(address);
    one.writeValue.value64 = value;
  }
  CUresult put_into(const CudaDriver& api, CUstream stream) {
    return api.cuStreamBatchMemOp_(stream, static_cast<unsigned>(count_), operations_.data(), 0);
  }

 private:
  CUstreamBatchMemOpParams& next(CUstreamBatchMemOpType what) {
    CUstreamBatchMemOpParams& one = operations_[count_++];
    one.operation = what;
    return one;
  }

  std::array<CUstreamBatchMemOpParams, 8> operations_{};
  std::size_t count_ = 0;
};

}  // namespace

Status CudaPost::load(CUdevice device) {
  CUmodule module = nullptr;
  const CUresult done = api_.cuModuleLoadData_(&module, kArcommPostFatbin);
  if (done != CUDA_SUCCESS) {
    return api_.failed(done, "loading the post kernel (it is built for GPUs of sm_80 and later)");
  }
  const Result<CudaKernel> kernel = load_kernel(api_, module, kPostKernelName);
  if (!kernel) return kernel.error();
  kernel_ = *kernel;
  const Result<CudaKernel> count = load_kernel(api_, module, kCountKernelName);
  if (!count) return count.error();
  count_ = *count;
  int can = 0;
  can_post_by_memory_ =
      api_.cuDeviceGetAttribute_(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) ==
          CUDA_SUCCESS &&
      can != 0;
  return {};
}

CUresult CudaPost::post(const GpuPost& post, CUstream stream) const {
  GpuPost copy = post;
  return launch(api_, kernel_, 1, 1, stream, &copy);
}

CUresult CudaPost::count(std::uint32_t* left, CUstream stream) const {
  return launch(api_, count_, 1, 1, stream, static_cast<void*>(&left));
}

CUresult CudaPost::post_by_memory(const MemoryPost& start, CUstream stream) const {
  const GpuPost& post = start.post;
  const auto path_index = static_cast<std::uint32_t>(post.path);
  MailboxPath& path = post.mailbox->paths[path_index];
  const std::uint64_t doorbell = to_word(Doorbell{.number = start.number, .plan = post.plan});
  Batch batch;
  // Both words have their number in the lower half, which comes first.
  if (start.waits_for_order) batch.wait_until(&path.done, start.number - 1);
  // As the post kernel would leave them, for kernels that follow and for the host.
  batch.write(&path.posted, start.number);
  batch.write(&post.notes->in_order[path_index], start.number);
  batch.write(&post.notes->plans[post.plan],
              std::uint64_t{start.note.number} << 32 | start.note.posted);
  batch.write(&path.doorbell, doorbell);
  switch (post.path) {
    case LaunchPath::Resident:
      batch.write(&post.doorbells->resident_posted, start.number);
      break;
    case LaunchPath::Launched:
      batch.write(&post.doorbells->launched, doorbell);
      break;
    case LaunchPath::InStream:  // nobody posts these two
    case LaunchPath::Alone:
    case LaunchPath::InCall:
      break;
  }
  batch.wait_until(&path.done, start.number);
  batch.write(&post.notes->passed[path_index], start.number);  // nothing here is used any more
  return batch.put_into(api_, stream);
}

}  // namespace arcomm::client
