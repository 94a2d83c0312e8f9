// NCCL, loaded at run time from the path that is given: the peer to measure against, in this
// process, one communicator over the first GPUs. Not for several threads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

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
  std::string version() const;

 private:
  struct Functions {
    int (*comm_init_all)(void** comms, int count, const int* devices) = nullptr;
    int (*all_reduce)(const void* send, void* recv, std::size_t count, int dtype, int op,
                      void* comm, cudaStream_t stream) = nullptr;
    int (*group_start)() = nullptr;
    int (*group_end)() = nullptr;
    int (*get_version)(int* version) = nullptr;
    // Null in a libnccl that is older than they are.
    int (*mem_alloc)(void** memory, std::size_t bytes) = nullptr;
    int (*window_register)(void* comm, void* memory, std::size_t bytes, void** window,
                           int flags) = nullptr;
  };

  Functions nccl_;
  std::vector<void*>
      comms_;  // for the life of the process: taking NCCL down is no part of a benchmark
};

}  // namespace arcomm::gpu
