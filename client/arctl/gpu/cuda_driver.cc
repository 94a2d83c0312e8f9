#include "client/arctl/gpu/cuda_driver.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <string>

namespace arcomm::arctl {
namespace {

#define ARCTL_TEXT_OF(name) #name
#define ARCTL_SYMBOL(function) ARCTL_TEXT_OF(function)  // with the version of cuda.h's macro

constexpr const char* kDriverLibrary = "libcuda.so.1";

template <typename Function>
bool find_in_driver(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Status open_driver(CudaDriver& driver) {
  void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "the CUDA driver cannot be loaded here (", why != nullptr ? why : kDriverLibrary,
                 "): install NVIDIA's driver or mount it into the container; --device host needs "
                 "none");
  }
  std::string missing;
#define X(function)                                                         \
  if (!find_in_driver(library, ARCTL_SYMBOL(function), driver.function##_)) \
    missing = ARCTL_SYMBOL(function);
  ARCTL_CUDA_FUNCTIONS(X)
#undef X
  if (!find_in_driver(library, "cuEventElapsedTime_v2", driver.event_elapsed_time) &&
      !find_in_driver(library, "cuEventElapsedTime", driver.event_elapsed_time)) {
    missing = "cuEventElapsedTime";
  }
  if (!missing.empty()) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "the CUDA driver ",
                 kDriverLibrary, " lacks ", missing, ": one of CUDA 12.0 or later is needed");
  }
  Status begun = driver.checked(driver.cuInit_(0), "the CUDA driver does not start (cuInit)");
  if (begun.ok()) return {};
  return error(ErrorCode::FailedPrecondition, Reason::Unsupported, begun.error().message,
               ": is a GPU visible to this process, and MPS running where it is required?");
}

}  // namespace

Result<const CudaDriver*> CudaDriver::load() {
  static std::mutex mutex;
  static std::optional<CudaDriver> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    CudaDriver driver;
    ARC_RETURN_IF_ERROR(open_driver(driver));
    loaded = driver;
  }
  return &*loaded;
}

Status CudaDriver::checked(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (cuGetErrorName_(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  const bool memory = result == CUDA_ERROR_OUT_OF_MEMORY;
  return error(memory ? ErrorCode::ResourceExhausted : ErrorCode::Internal,
               memory ? Reason::OutOfMemory : Reason::None, what, ": ", name);
}

}  // namespace arcomm::arctl
