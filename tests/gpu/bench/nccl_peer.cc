#include "tests/gpu/bench/nccl_peer.h"

#include <algorithm>
#include <numeric>

namespace arcomm::gpu {

Result<NcclPeer> NcclPeer::open(const std::string& path, int ranks) {
  Result<arctl::NcclLibrary> library = arctl::NcclLibrary::load(path);
  if (!library) return std::move(library).error();
  NcclPeer peer;
  peer.nccl_ = *library;
  std::vector<int> devices(static_cast<std::size_t>(ranks));
  std::iota(devices.begin(), devices.end(), 0);
  peer.comms_.resize(devices.size());
  ARC_RETURN_IF_ERROR(
      peer.nccl_.checked(peer.nccl_.comm_init_all(peer.comms_.data(), ranks, devices.data()),
                         "ncclCommInitAll", nullptr));
  return peer;
}

Result<NcclPeer::Windows> NcclPeer::symmetric_windows(std::uint64_t bytes) {
  if (nccl_.mem_alloc == nullptr || nccl_.comm_window_register == nullptr) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "NCCL ", version(),
                 " knows no symmetric windows");
  }
  Windows windows;
  for (std::vector<void*>* memory : {&windows.send, &windows.recv}) {
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      void* place = nullptr;
      cudaSetDevice(static_cast<int>(rank));
      ARC_RETURN_IF_ERROR(
          nccl_.checked(nccl_.mem_alloc(&place, bytes), "ncclMemAlloc", comms_[rank]));
      memory->push_back(place);
    }
    // All ranks in one group: each waits for the others' memory.
    std::vector<void*> handles(comms_.size());
    int failed = nccl_.group_start();
    for (std::size_t rank = 0; rank < comms_.size() && failed == 0; ++rank) {
      failed = nccl_.comm_window_register(comms_[rank], (*memory)[rank], bytes, &handles[rank],
                                          arctl::kNcclWindowSymmetric);
    }
    if (const int ended = nccl_.group_end(); failed == 0) failed = ended;
    ARC_RETURN_IF_ERROR(nccl_.checked(failed, "ncclCommWindowRegister", comms_[0]));
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
    done &=
        nccl_.all_reduce(send[rank], recv[rank], count, arctl::nccl_number_of(dtype),
                         arctl::nccl_number_of(ReduceOp::Sum), comms_[rank], streams[rank]) == 0;
  }
  return nccl_.group_end() == 0 && done;
}

}  // namespace arcomm::gpu
