// The memory that a FIFO's steps may lie in, and the check that every word of a kernel passes
// before the proxy touches a byte: whatever the kernel side wrote, the range that comes out lies in
// memory that the FIFO was made with. Thread: any; a value, and what its pointers name outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/proxy/fifo/shared_slots.h"
#include "proto/gpu/device_fifo.h"
#include "proto/status.h"

namespace arcomm::proxy {

struct SlotMemory {
  SlotMode mode = SlotMode::Normal;
  std::uint32_t most_bytes = 0;     // of a step
  std::span<std::byte> slots = {};  // Normal: kFifoSteps * most_bytes
  SharedSlots* pool = nullptr;      // Offset: its slots are as long as most_bytes
  std::vector<std::span<std::byte>> regions =
      {};  // Pointer: registered for as long as the FIFO lives

  // Whether it hangs together.
  Status check() const;

  // Normal and Offset: where a step lies. `offset`: what the pool gave, for Offset.
  std::span<std::byte> of_step(std::uint64_t step, std::uint64_t offset) const;
  // What of_step() begins at, counted from the slots' or the pool's begin.
  std::uint64_t offset_of(std::uint64_t step, std::uint64_t offset) const;

  // The bytes that a kernel's entry means, of the copy that was made of it. `offset` as above.
  // DataLoss/Corrupt: it is not of this step, or means memory that it may not.
  Result<std::span<std::byte>> checked(const FifoEntry& copy, std::uint64_t step,
                                       std::uint64_t offset) const;
};

}  // namespace arcomm::proxy
