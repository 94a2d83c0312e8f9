#include "daemon/proxy/fifo/slot_memory.h"

namespace arcomm::proxy {
namespace {

Error corrupt(std::uint64_t step, const char* what, std::uint64_t is, std::uint64_t allowed) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, "the kernel's entry for step ", step, " has ",
               what, " ", is, " (allowed: ", allowed,
               "): something overwrote the FIFO; its communicator is to be made anew");
}

}  // namespace

Status SlotMemory::check() const {
  const auto wrong = [](const auto&... parts) {
    return error(ErrorCode::Internal, Reason::Bug, "a FIFO of the proxy: ", parts...);
  };
  if (most_bytes == 0) return wrong("its steps have no bytes");
  switch (mode) {
    case SlotMode::Normal:
      if (slots.size() < std::uint64_t{kFifoSteps} * most_bytes)
        return wrong("its slots take ", slots.size(), " bytes, too few for ", kFifoSteps,
                     " steps of ", most_bytes);
      return {};
    case SlotMode::Offset:
      if (pool == nullptr || pool->slot_bytes() < most_bytes)
        return wrong("its pool has no slots of ", most_bytes, " bytes");
      return {};
    case SlotMode::Pointer:
      if (regions.empty()) return wrong("no memory is registered for it");
      return {};
  }
  return wrong("slot mode ", static_cast<std::uint32_t>(mode));
}

std::uint64_t SlotMemory::offset_of(std::uint64_t step, std::uint64_t offset) const {
  return mode == SlotMode::Normal ? std::uint64_t{slot_of(step)} * most_bytes : offset;
}

std::span<std::byte> SlotMemory::of_step(std::uint64_t step, std::uint64_t offset) const {
  const std::span<std::byte> all = mode == SlotMode::Normal ? slots : pool->memory();
  return all.subspan(offset_of(step, offset), most_bytes);
}

Result<std::span<std::byte>> SlotMemory::checked(const FifoEntry& copy, std::uint64_t step,
                                                 std::uint64_t offset) const {
  const std::uint32_t bytes = bytes_of(copy.size_word);
  if (copy.sequence != step + 1) return corrupt(step, "sequence", copy.sequence, step + 1);
  if (copy.mode != mode) {
    return corrupt(step, "slot mode", static_cast<std::uint32_t>(copy.mode),
                   static_cast<std::uint32_t>(mode));
  }
  if (bytes == 0 || bytes > most_bytes) return corrupt(step, "size", bytes, most_bytes);
  if (mode != SlotMode::Pointer) {
    // Where it lies is the proxy's own to know; the entry only has to agree.
    if (copy.offset != offset_of(step, offset))
      return corrupt(step, "offset", copy.offset, offset_of(step, offset));
    return of_step(step, offset).first(bytes);
  }
  for (const std::span<std::byte> region : regions) {
    const auto begin = reinterpret_cast<std::uintptr_t>(region.data());
    // In this order nothing overflows.
    if (copy.address < begin || copy.address - begin > region.size()) continue;
    const std::uint64_t from = copy.address - begin;
    if (region.size() - from >= bytes) return region.subspan(from, bytes);
  }
  return corrupt(step, "address outside of registered memory", copy.address, regions.size());
}

}  // namespace arcomm::proxy
