// In the place of CUDA, in builds without it.
#include "client/cuda/gpu.h"

namespace arcomm::client {

Result<Gpus*> load_gpus(const char* driver) {
  static_cast<void>(driver);
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "this libarclient was built without CUDA, and the daemon's session is on GPUs: "
               "build it where nvcc is, or attach with device host:0");
}

}  // namespace arcomm::client
