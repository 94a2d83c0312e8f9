// Allocations of GPU memory of another process, one or several, mapped behind one another into one
// range of this process's addresses, readable and writable by the GPUs that were named: the one way
// by which the daemon and libarclient map what the other, or a client, made. By the driver alone.
// Owns the mappings; the memory itself lives as long as anybody has it mapped. Threads: as Memory;
// a context is current. Must be gone before the process's contexts are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "transport/device/cuda/cuda_driver.h"
#include "transport/device/memory.h"

namespace arcomm {

class CudaChunks {
 public:
  // One of them: by its descriptor, or, where that is -1, by its handle.
  struct Piece {
    int descriptor = -1;
    FabricHandle fabric{};
    std::uint64_t bytes = 0;  // of the whole allocation, as its maker says
  };

  CudaChunks() = default;
  ~CudaChunks();
  CudaChunks(CudaChunks&& other) noexcept;
  CudaChunks& operator=(CudaChunks&& other) noexcept;

  // Once. `driver` outlives this. The descriptors stay the caller's. Every size is its maker's
  // word: the driver refuses one that is more than the allocation has, or no whole granules (2 MB),
  // and the error names the piece. What had been mapped by then goes with this object.
  Status import(const CudaDriver& driver, std::span<const Piece> chunks,
                std::span<const int> accessible_from);

  MemoryRef view() const { return view_; }

 private:
  Status map(const Piece& chunk);
  void release();

  const CudaDriver* driver_ = nullptr;
  MemoryRef view_;                    // all that is reserved
  std::vector<std::uint64_t> bytes_;  // of the pieces that are mapped, in order
  std::uint64_t mapped_bytes_ = 0;    // their sum
};

}  // namespace arcomm
