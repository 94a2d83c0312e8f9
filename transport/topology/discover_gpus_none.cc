// The build without CUDA.
#include "transport/topology/gpus.h"

namespace arcomm {

Result<std::vector<Gpu>> discover_gpus() {
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "this arcommd was built without CUDA: install a CUDA build to use GPUs");
}

}  // namespace arcomm
