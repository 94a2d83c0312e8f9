#include "client/arctl/gpu/contenders/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace arcomm::arctl {
namespace {

template <typename Function>
bool find_in_nccl(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<NcclLibrary> NcclLibrary::load(const std::string& path) {
  const std::string file = path.empty() ? "libnccl.so.2" : path;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "NCCL cannot be loaded (",
                 why != nullptr ? why : file,
                 "): name its file with --nccl (Python's package nvidia-nccl has it under "
                 "nvidia/nccl/lib), or leave the peers out");
  }
  NcclLibrary nccl;
  if (!find_in_nccl(library, "ncclGetVersion", nccl.get_version) ||
      !find_in_nccl(library, "ncclGetUniqueId", nccl.get_unique_id) ||
      !find_in_nccl(library, "ncclCommInitRank", nccl.comm_init_rank) ||
      !find_in_nccl(library, "ncclAllReduce", nccl.all_reduce) ||
      !find_in_nccl(library, "ncclCommGetAsyncError", nccl.comm_get_async_error) ||
      !find_in_nccl(library, "ncclCommInitAll", nccl.comm_init_all) ||
      !find_in_nccl(library, "ncclGroupStart", nccl.group_start) ||
      !find_in_nccl(library, "ncclGroupEnd", nccl.group_end) ||
      !find_in_nccl(library, "ncclGetErrorString", nccl.get_error_string)) {
    const char* why = ::dlerror();
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, file,
                 " is not NCCL as it is known here: ", why != nullptr ? why : "a function lacks");
  }
  find_in_nccl(library, "ncclGetLastError", nccl.get_last_error);
  find_in_nccl(library, "ncclMemAlloc", nccl.mem_alloc);
  find_in_nccl(library, "ncclCommWindowRegister", nccl.comm_window_register);
  return nccl;
}

std::string NcclLibrary::version() const {
  int number = 0;
  get_version(&number);
  return std::to_string(number / 10'000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

Status NcclLibrary::checked(int result, const char* what, void* comm) const {
  if (result == 0) return {};
  const char* last = get_last_error != nullptr ? get_last_error(comm) : "";
  const bool tells = last != nullptr && *last != '\0';
  return error(ErrorCode::Internal, Reason::None, what, ": ", get_error_string(result),
               tells ? ": " : "", tells ? last : "",
               "; with NCCL_DEBUG=INFO in the environment NCCL says more");
}

std::string nccl_nvls() {
  const char* const value = std::getenv(kNvlsVariable);
  return value != nullptr ? value : "0";
}

int nccl_number_of(DType dtype) {
  switch (dtype) {
    case DType::Int8:
      return 0;
    case DType::Uint8:
      return 1;
    case DType::Int32:
      return 2;
    case DType::Uint32:
      return 3;
    case DType::Int64:
      return 4;
    case DType::Uint64:
      return 5;
    case DType::Float16:
      return 6;
    case DType::Float32:
      return 7;
    case DType::Float64:
      return 8;
    case DType::BFloat16:
      return 9;
  }
  return 7;
}

int nccl_number_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return 0;
    case ReduceOp::Prod:
      return 1;
    case ReduceOp::Max:
      return 2;
    case ReduceOp::Min:
      return 3;
    case ReduceOp::Avg:
      return 4;
  }
  return 0;
}

}  // namespace arcomm::arctl
