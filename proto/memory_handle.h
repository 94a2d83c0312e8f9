// Where a registered buffer's bytes live, in words that may travel. A descriptor travels beside it,
// by SCM_RIGHTS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace arcomm {

enum class MemoryKind : std::uint8_t {
  HostShm = 1,  // a sealed memfd
  CudaIpc = 2,  // cudaIpcMemHandle_t bytes in `opaque`
  PosixFd = 3,  // a CUDA VMM allocation exported as a descriptor
  Fabric = 4,   // CUmemFabricHandle bytes in `opaque`
};

struct MemoryHandle {
  MemoryKind kind = MemoryKind::HostShm;
  std::uint64_t offset_bytes = 0;  // of the buffer inside the allocation
  std::uint64_t length_bytes = 0;  // of the buffer
  std::array<std::byte, 64> opaque{};
  std::uint64_t allocation_bytes = 0;  // the whole allocation, as its maker says
};

}  // namespace arcomm
