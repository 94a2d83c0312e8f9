#include "client/cuda/cuda_api.h"

#include <dlfcn.h>

#include <string>

namespace arcomm::client {
namespace {

#define ARC_TEXT_OF(name) #name
#define ARC_SYMBOL(function) ARC_TEXT_OF(function)  // with the version that cuda.h's macro gives it

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<CudaApi> CudaApi::load(const char* library) {
  void* const found = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) {
    const char* why = ::dlerror();
    return error(ErrorCode::Unavailable, Reason::Unsupported,
                 "the daemon's session is on GPUs, and the CUDA driver cannot be loaded here (",
                 why != nullptr ? why : library,
                 "): install it, mount it into the container, or attach with device host:0");
  }
  CudaApi api;
  std::string missing;
#define X(function) \
  if (!find(found, ARC_SYMBOL(function), api.function##_)) missing = ARC_SYMBOL(function);
  ARC_CUDA_FUNCTIONS(X)
#undef X
  find(found, "cuFuncLoad", api.load_function);
  if (!missing.empty()) {
    return error(ErrorCode::Unavailable, Reason::Unsupported, "the CUDA driver ", library,
                 " lacks ", missing, ": a driver of CUDA 12.0 or later is needed");
  }
  const CUresult begun = api.cuInit_(0);
  if (begun != CUDA_SUCCESS) {
    return error(ErrorCode::Unavailable, Reason::Unsupported,
                 "the CUDA driver does not start (cuInit: ", api.name_of(begun),
                 "): is a GPU visible to this process, and MPS running where it is required?");
  }
  return api;
}

const char* CudaApi::name_of(CUresult failure) const {
  const char* name = nullptr;
  return cuGetErrorName_(failure, &name) == CUDA_SUCCESS && name != nullptr
             ? name
             : "an unknown CUDA error";
}

Error CudaApi::failed(CUresult failure, const char* what) const {
  const bool memory = failure == CUDA_ERROR_OUT_OF_MEMORY;
  return error(memory ? ErrorCode::ResourceExhausted : ErrorCode::Internal,
               memory ? Reason::OutOfMemory : Reason::None, what, ": ", name_of(failure));
}

}  // namespace arcomm::client
