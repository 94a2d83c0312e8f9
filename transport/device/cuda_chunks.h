// Several allocations of GPU memory of another process, mapped behind one another into one range of
// this process's addresses, readable and writable by the GPUs that were named. Owns the mappings;
// the memory itself lives as long as anybody has it mapped. Threads: as Memory. Must be gone before
// the process's contexts are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "transport/device/memory.h"

namespace arcomm {

class CudaChunks {
 public:
  // Every size is its maker's word: one that is more than the allocation has, or no whole granules
  // (2 MB), is InvalidArgument. All or nothing. The descriptors stay the caller's.
  static Result<CudaChunks> import(std::span<const MemoryChunk> chunks,
                                   std::span<const int> accessible_from);

  CudaChunks() = default;
  ~CudaChunks();
  CudaChunks(CudaChunks&& other) noexcept;
  CudaChunks& operator=(CudaChunks&& other) noexcept;

  MemoryRef view() const { return view_; }

 private:
  Status map(const MemoryChunk& chunk);
  void release();

  MemoryRef view_;                    // all that is reserved
  std::vector<std::uint64_t> bytes_;  // of the pieces that are mapped, in order
  std::uint64_t mapped_bytes_ = 0;    // their sum
};

}  // namespace arcomm
