// The build without CUDA.
#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "transport/device/device.h"

namespace arcomm {

Result<GpuHardware> open_gpu(Device& device) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported, device.name(),
               ": this arcommd was built without CUDA; install a build with it, or serve the host "
               "(device.backend = \"host\")");
}

}  // namespace arcomm
