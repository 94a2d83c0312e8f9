#include "client/src/host/memory/staging.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/src/control/new_allocation.h"

namespace arcomm::client {
namespace {

constexpr std::size_t kSmallestSlotBytes = std::size_t{64} << 10;
// Announced memory larger than this is cut into segments anyway; its slots come at first use.
constexpr std::size_t kLargestWarmUpBytes = std::size_t{4} << 20;

std::size_t slot_size_for(std::size_t bytes) {
  return std::bit_ceil(std::max(bytes, kSmallestSlotBytes));
}

}  // namespace

StagingSlot* StagingPool::acquire_free(std::size_t bytes) {
  const std::size_t wanted = slot_size_for(bytes);
  const std::lock_guard lock(mutex_);
  const auto fits = std::find_if(free_.begin(), free_.end(), [wanted](const StagingSlot* slot) {
    return slot->bytes >= wanted && slot->bytes <= 4 * wanted;
  });
  if (fits == free_.end()) return nullptr;
  StagingSlot* slot = *fits;
  free_.erase(fits);
  return slot;
}

Result<StagingSlot*> StagingPool::acquire(std::size_t bytes, Deadline deadline) {
  if (StagingSlot* slot = acquire_free(bytes)) return slot;
  Result<std::unique_ptr<StagingSlot>> slot = allocate(slot_size_for(bytes), deadline);
  if (!slot) return std::move(slot).error();
  const std::lock_guard lock(mutex_);
  slots_.push_back(std::move(*slot));
  return slots_.back().get();
}

void StagingPool::release(StagingSlot* slot) {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

Status StagingPool::warm_up(std::size_t bytes, Deadline deadline) {
  Result<StagingSlot*> slot = acquire(std::min(bytes, kLargestWarmUpBytes), deadline);
  if (!slot) return std::move(slot).error();
  release(*slot);
  return {};
}

Result<std::unique_ptr<StagingSlot>> StagingPool::allocate(std::size_t bytes, Deadline deadline) {
  Result<NewAllocation> made = NewAllocation::of(control_, descriptors_, key_, bytes, {}, deadline);
  if (!made) return std::move(made).error();
  Result<SharedMapping> mapping = SharedMapping::map(made->memory(), {.length_bytes = bytes,
                                                                      .is_prefaulted = true,
                                                                      .is_inherited = false,
                                                                      .what = "staging memory"});
  if (!mapping) return std::move(mapping).error();
  made->keep();
  return std::make_unique<StagingSlot>(std::move(*mapping), made->id());
}

}  // namespace arcomm::client
