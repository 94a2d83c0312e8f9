#include "transport/device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <string>

namespace arcomm {
namespace {

#define ARC_TEXT_OF(name) #name
#define ARC_SYMBOL(function) ARC_TEXT_OF(function)  // with the version that cuda.h's macro gives it

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<CudaDriver> CudaDriver::load(const char* library) {
  void* const found = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) {
    const char* why = ::dlerror();
    return error(ErrorCode::Unavailable, Reason::Unsupported,
                 "the CUDA driver cannot be loaded here (", why != nullptr ? why : library,
                 "): install it, or mount it into the container");
  }
  CudaDriver driver;
  std::string missing;
#define X(function) \
  if (!find(found, ARC_SYMBOL(function), driver.function##_)) missing = ARC_SYMBOL(function);
  ARC_CUDA_FUNCTIONS(X)
#undef X
  if (!find(found, "cuEventElapsedTime_v2", driver.event_elapsed_time) &&
      !find(found, "cuEventElapsedTime", driver.event_elapsed_time)) {
    missing = "cuEventElapsedTime";
  }
  find(found, "cuFuncLoad", driver.load_function);
  if (missing.empty()) return driver;
  return error(ErrorCode::Unavailable, Reason::Unsupported, "the CUDA driver ", library, " lacks ",
               missing, ": one of CUDA 12.0 or later is needed");
}

Status CudaDriver::start() const {
  const CUresult begun = cuInit_(0);
  if (begun == CUDA_SUCCESS) return {};
  return error(ErrorCode::Unavailable, Reason::Unsupported,
               "the CUDA driver does not start (cuInit: ", name_of(begun),
               "): is a GPU visible to this process, and MPS running where it is required?");
}

const char* CudaDriver::name_of(CUresult failure) const {
  const char* name = nullptr;
  return cuGetErrorName_(failure, &name) == CUDA_SUCCESS && name != nullptr
             ? name
             : "an unknown CUDA error";
}

Error CudaDriver::failed(CUresult failure, const char* what) const {
  const bool memory = failure == CUDA_ERROR_OUT_OF_MEMORY;
  return error(memory ? ErrorCode::ResourceExhausted : ErrorCode::Internal,
               memory ? Reason::OutOfMemory : Reason::None, what, ": ", name_of(failure));
}

Status CudaDriver::checked(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  return failed(result, what);
}

}  // namespace arcomm
