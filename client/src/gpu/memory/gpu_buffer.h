// A range of a GPU's memory that the daemon knows in one session. A value.
#pragma once

#include <cstdint>
#include <functional>

#include "client/cuda/gpu.h"
#include "proto/types.h"

namespace arcomm::client {

struct GpuBuffer {
  GpuRange range;
  BufferId id{};
  // It is the run of chunks around one buffer: of another buffer inside, nobody has yet looked
  // whether its chunks are still there.
  bool in_chunks = false;

  std::uint64_t offset_of(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - range.base;
  }
  bool holds(const void* address, std::uint64_t bytes) const {
    const std::uint64_t offset = offset_of(address);  // of an address below the base: beyond it
    return offset <= range.bytes && bytes <= range.bytes - offset;
  }
};

// Whether the memory that was registered under [address, +bytes) is there still.
using IsThere = std::function<bool(std::uintptr_t address, std::uint64_t bytes)>;

}  // namespace arcomm::client
