// In the place of CUDA, in builds without it.
#include "client/arctl/gpu/device.h"

namespace arcomm::arctl {

Result<GpusSeen> see_gpus() {
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "this arctl was built without CUDA: build it where nvcc is on PATH");
}

Result<std::unique_ptr<GpuDevice>> open_gpu(int ordinal) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "this arctl was built without CUDA, and cannot use GPU ", ordinal,
               ": build it where nvcc is on PATH, or ask for --device host");
}

}  // namespace arcomm::arctl
