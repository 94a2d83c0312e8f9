#include "tests/gpu/nccl_peer.h"

#include <dlfcn.h>

#include <algorithm>
#include <numeric>

namespace arcomm::gpu {
namespace {

// ncclDataType_t and ncclRedOp_t, fixed by NCCL's ABI.
int nccl_type(DType dtype) {
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
constexpr int kNcclSum = 0;
constexpr int kNcclWinCollSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<NcclPeer> NcclPeer::open(const std::string& path, int ranks) {
  void* library = ::dlopen(path.empty() ? "libnccl.so.2" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return error(ErrorCode::NotFound, Reason::Unsupported, "NCCL: ", ::dlerror(),
                 "; name its file with --nccl");
  }
  NcclPeer peer;
  if (!find(library, "ncclCommInitAll", peer.nccl_.comm_init_all) ||
      !find(library, "ncclAllReduce", peer.nccl_.all_reduce) ||
      !find(library, "ncclGroupStart", peer.nccl_.group_start) ||
      !find(library, "ncclGroupEnd", peer.nccl_.group_end) ||
      !find(library, "ncclGetVersion", peer.nccl_.get_version)) {
    return error(ErrorCode::NotFound, Reason::Unsupported,
                 "this libnccl lacks a function: ", ::dlerror());
  }
  find(library, "ncclMemAlloc", peer.nccl_.mem_alloc);
  find(library, "ncclCommWindowRegister", peer.nccl_.window_register);
  std::vector<int> devices(static_cast<std::size_t>(ranks));
  std::iota(devices.begin(), devices.end(), 0);
  peer.comms_.resize(devices.size());
  if (const int failed = peer.nccl_.comm_init_all(peer.comms_.data(), ranks, devices.data());
      failed != 0) {
    return error(ErrorCode::Internal, Reason::None, "ncclCommInitAll answered ", failed);
  }
  return peer;
}

Result<NcclPeer::Windows> NcclPeer::symmetric_windows(std::uint64_t bytes) {
  if (nccl_.mem_alloc == nullptr || nccl_.window_register == nullptr) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "NCCL ", version(),
                 " knows no symmetric windows");
  }
  Windows windows;
  for (std::vector<void*>* memory : {&windows.send, &windows.recv}) {
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      void* place = nullptr;
      cudaSetDevice(static_cast<int>(rank));
      if (const int failed = nccl_.mem_alloc(&place, bytes); failed != 0) {
        return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "ncclMemAlloc answered ",
                     failed);
      }
      memory->push_back(place);
    }
    // All ranks in one group: each waits for the others' memory.
    std::vector<void*> handles(comms_.size());
    int failed = nccl_.group_start();
    for (std::size_t rank = 0; rank < comms_.size() && failed == 0; ++rank) {
      failed = nccl_.window_register(comms_[rank], (*memory)[rank], bytes, &handles[rank],
                                     kNcclWinCollSymmetric);
    }
    if (const int ended = nccl_.group_end(); failed == 0) failed = ended;
    if (failed != 0) {
      return error(ErrorCode::Internal, Reason::None, "ncclCommWindowRegister answered ", failed);
    }
    // Success without a window is how NCCL says that the machine cannot do it.
    if (std::ranges::count(handles, nullptr) != 0) {
      return error(ErrorCode::Unimplemented, Reason::Unsupported, "NCCL ", version(),
                   " gave no symmetric window here");
    }
  }
  return windows;
}

bool NcclPeer::all_reduce(const std::vector<void*>& send, const std::vector<void*>& recv,
                          std::uint64_t count, DType dtype,
                          const std::vector<cudaStream_t>& streams) {
  bool done = nccl_.group_start() == 0;
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
    done &= nccl_.all_reduce(send[rank], recv[rank], count, nccl_type(dtype), kNcclSum,
                             comms_[rank], streams[rank]) == 0;
  }
  return nccl_.group_end() == 0 && done;
}

std::string NcclPeer::version() const {
  int number = 0;
  nccl_.get_version(&number);
  return std::to_string(number / 10'000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

}  // namespace arcomm::gpu
