#include "client/src/host/memory/staging.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/src/control/fd_channel.h"
#include "client/src/control/node_control.h"
#include "proto/unique_fd.h"

namespace arcomm::client {
namespace {

constexpr std::size_t kSmallestSlotBytes = std::size_t{64} << 10;
// Announced memory larger than this is cut into segments anyway; its slots come at first use.
constexpr std::size_t kLargestWarmUpBytes = std::size_t{4} << 20;

// A buffer that could not be mapped must not count against the quota for the session's life. The
// deadline that it was asked for under may be what made it fail.
void give_back(NodeControl& control, const SessionKey& key, BufferId buffer) {
  constexpr std::chrono::milliseconds kFor{20};
  static_cast<void>(control.release_buffer(key, buffer, Deadline::after(kFor)));
}

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
  Result<SharedBuffer> shared = control_.allocate_buffer(key_, bytes, {}, deadline);
  if (!shared) return std::move(shared).error();
  Result<std::vector<UniqueFd>> memory = descriptors_.fetch(shared->fd_ticket, 1, deadline);
  if (!memory) {
    give_back(control_, key_, shared->buffer);
    return std::move(memory).error();
  }
  if (shared->length_bytes < bytes) {  // touching what is not there would raise SIGBUS
    give_back(control_, key_, shared->buffer);
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon was asked for ", bytes,
                 " bytes of staging memory and gave ", shared->length_bytes);
  }
  Result<SharedMapping> mapping =
      SharedMapping::map((*memory)[0].get(), {.length_bytes = bytes,
                                              .is_prefaulted = true,
                                              .is_inherited = false,
                                              .what = "staging memory"});
  if (!mapping) {
    give_back(control_, key_, shared->buffer);
    return std::move(mapping).error();
  }
  return std::make_unique<StagingSlot>(std::move(*mapping), shared->buffer);
}

}  // namespace arcomm::client
