// NCCL, loaded at run time from the path that is given: the peer to measure against, in this
// process, one communicator over the first GPUs. Not for several threads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/arctl/gpu/contenders/nccl_library.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::gpu {

class NcclPeer {
 public:
  // path: of libnccl.so.2; empty: as the loader finds it.
  static Result<NcclPeer> open(const std::string& path, int ranks);

  // Memory by rank, of NCCL's own allocator and in symmetric windows of this communicator: NCCL's
  // kernels for such memory read and write the peers' in place. For the life of the process. An
  // error says why this libnccl or this machine has none.
  struct Windows {
    std::vector<void*> send, recv;
  };
  Result<Windows> symmetric_windows(std::uint64_t bytes);

  // One AllReduce, sum, on every rank's stream. False: NCCL refused it.
  bool all_reduce(const std::vector<void*>& send, const std::vector<void*>& recv,
                  std::uint64_t count, DType dtype, const std::vector<cudaStream_t>& streams);
  std::string version() const { return nccl_.version(); }

 private:
  arctl::NcclLibrary nccl_;
  // For the life of the process: taking NCCL down is no part of a benchmark.
  std::vector<void*> comms_;
};

}  // namespace arcomm::gpu
