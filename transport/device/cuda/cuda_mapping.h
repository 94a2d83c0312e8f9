// One allocation of GPU memory that this process made, mapped here, readable and writable by the
// GPUs that were named. Owns the mapping; the memory itself lives as long as anybody, here or in
// another process, has it mapped. Threads: as Memory. Must be gone before the process's contexts
// are.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "proto/status.h"
#include "proto/unique_fd.h"
#include "transport/device/memory.h"

namespace arcomm {

class CudaMapping {
 public:
  // New memory on GPU `home`, rounded up to the driver's granularity (2 MB), not zeroed.
  static Result<CudaMapping> create(int home, std::uint64_t bytes,
                                    std::span<const int> accessible_from);

  CudaMapping() = default;
  ~CudaMapping();
  CudaMapping(CudaMapping&& other) noexcept;
  CudaMapping& operator=(CudaMapping&& other) noexcept;

  MemoryRef view() const { return view_; }
  Result<UniqueFd> export_fd() const;

 private:
  static Result<CudaMapping> map(CUmemGenericAllocationHandle handle, std::uint64_t bytes,
                                 std::span<const int> accessible_from);
  void release();

  MemoryRef view_;
  CUmemGenericAllocationHandle handle_ = 0;
  bool owns_handle_ = false;
};

}  // namespace arcomm
