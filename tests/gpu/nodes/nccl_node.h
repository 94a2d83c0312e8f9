// NCCL in the place of libarclient: one rank of a communicator of its own, with the memory and the
// stream that it works with, for node_rank. How it reaches the other ranks is said to it by its own
// environment (NCCL_P2P_DISABLE and so on). Of the process's options; what fails ends the process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/arctl/gpu/contenders/nccl_library.h"
#include "tests/gpu/nodes/node_sums.h"

namespace arcomm::gpu {

class NcclNode {
 public:
  // path: of libnccl.so.2. The unique id travels by the options' file, as arcommd's does.
  explicit NcclNode(const std::string& path);
  NcclNode(const NcclNode&) = delete;
  NcclNode& operator=(const NcclNode&) = delete;

  // Refers to this object.
  Summing summing();

 private:
  void check(int result, const char* what) const;
  void settle(const char* what) const;

  arctl::NcclLibrary nccl_;
  // For the life of the process: taking NCCL down is no part of what is measured.
  void* comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::byte *send_ = nullptr, *recv_ = nullptr;
};

}  // namespace arcomm::gpu
