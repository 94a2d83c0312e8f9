// Where a registered buffer's bytes live, in words that may travel. A descriptor travels beside it,
// by SCM_RIGHTS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/unique_fd.h"

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

// CUmemFabricHandle, as bytes.
inline constexpr std::size_t kFabricHandleBytes = 64;
using FabricHandle = std::array<std::byte, kFabricHandleBytes>;

// The most pieces that one registration may have: 5 GB of PyTorch's expandable segments (20 MB a
// piece). Each is a descriptor here for a moment and a mapping for as long as it is registered.
inline constexpr std::size_t kMostChunks = 256;

// One of the pieces of physical GPU memory that lie behind one another in a buffer: by descriptor,
// or, where there is none, by handle.
struct MemoryChunk {
  UniqueFd memory;
  FabricHandle fabric{};
  std::uint64_t bytes = 0;  // as its maker says
};

}  // namespace arcomm
