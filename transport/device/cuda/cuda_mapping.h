// One allocation of GPU memory that this process made, mapped here, readable and writable by the
// GPUs that were named. Owns the mapping; the memory itself lives as long as anybody, here or in
// another process, has it mapped. Threads: as Memory. Must be gone before the process's contexts
// are.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "proto/status.h"
#include "proto/unique_fd.h"
#include "transport/device/memory.h"

namespace arcomm {

class CudaMapping {
 public:
  // New memory on GPU `home`, rounded up to the driver's granularity (2 MB), not zeroed.
  // most_bytes: what it may grow to, for which addresses are reserved; 0: no more than it has.
  static Result<CudaMapping> create(int home, std::uint64_t bytes,
                                    std::span<const int> accessible_from,
                                    std::uint64_t most_bytes = 0);

  CudaMapping() = default;
  ~CudaMapping();
  CudaMapping(CudaMapping&& other) noexcept;
  CudaMapping& operator=(CudaMapping&& other) noexcept;

  MemoryRef view() const { return view_; }
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  Result<UniqueFd> export_fd() const;  // of what create() made
  // `bytes` in all, rounded up; not zeroed. With the GPUs that it was created with.
  Status grow(int home, std::uint64_t bytes, std::span<const int> accessible_from);
  void cut_back();  // to what create() made

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    std::uint64_t bytes = 0;
  };

  Status reserve(std::uint64_t bytes);
  // One piece more, behind those that are there.
  Status add(int home, std::uint64_t bytes, std::span<const int> accessible_from);
  void remove_last();
  void release();

  MemoryRef view_;  // what is mapped, from the first reserved address on
  std::uint64_t reserved_bytes_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace arcomm
