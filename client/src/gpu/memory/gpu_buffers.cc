#include "client/src/gpu/memory/gpu_buffers.h"

#include <mutex>
#include <optional>
#include <utility>

#include "client/src/gpu/memory/gpu_allocations.h"
#include "client/src/gpu/memory/gpu_memory_check.h"

namespace arcomm::client {
namespace {

bool is_same(const GpuRange& a, const GpuRange& b) {
  return a.base == b.base && a.bytes == b.bytes && a.allocation == b.allocation &&
         a.is_mapped == b.is_mapped;
}

bool overlap(const GpuRange& a, const GpuRange& b) {
  return a.base < b.base + b.bytes && b.base < a.base + a.bytes;
}

Status check_end(const GpuRange& range, const void* address, std::uint64_t bytes) {
  const GpuBuffer buffer{.range = range};
  if (buffer.holds(address, bytes)) return {};
  return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, address, " + ", bytes,
               " bytes leaves its allocation, which ends ", range.bytes - buffer.offset_of(address),
               " bytes behind it");
}

bool is_of_arc(const GpuRange& range) {
  return gpu_allocations().find(reinterpret_cast<const void*>(range.base)) != nullptr;
}

}  // namespace

Result<GpuBuffer> GpuBuffers::find(Gpu& gpu, const void* address, std::uint64_t bytes,
                                   Deadline deadline) {
  const Result<GpuRange> range = gpu.range_of(address);
  if (!range) return range.error();
  ARC_RETURN_IF_ERROR(check_gpu(gpu, *range, address));
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("telling the daemon about GPU memory");
  const auto found = buffers_.find(range->base);
  if (found != buffers_.end() && is_same(found->second.range, *range)) {
    ARC_RETURN_IF_ERROR(check_end(*range, address, bytes));
    return found->second;
  }
  const bool in_chunks = range->is_mapped && !is_of_arc(*range);
  if (in_chunks) {
    if (const std::optional<GpuBuffer> known = segments_.find(gpu, address, bytes)) return *known;
  } else {
    ARC_RETURN_IF_ERROR(check_end(*range, address, bytes));
  }
  ARC_RETURN_IF_ERROR(forget_freed(gpu, *range, deadline));
  segments_.forget_unmapped(gpu, deadline);
  if (in_chunks) return segments_.add(gpu, address, bytes, deadline);
  Result<BufferId> id = daemon_.add(gpu, *range, deadline);
  if (!id) return std::move(id).error();
  const GpuBuffer buffer{.range = *range, .id = *id};
  buffers_[range->base] = buffer;
  return buffer;
}

Status GpuBuffers::add_known(const GpuBuffer& buffer, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("telling the daemon about GPU memory");
  if (const auto freed = buffers_.find(buffer.range.base); freed != buffers_.end()) {
    ARC_RETURN_IF_ERROR(daemon_.remove(freed->second.id, deadline));
  }
  buffers_[buffer.range.base] = buffer;
  return {};
}

// CUDA tells no one when memory is freed. A registration keeps freed memory alive in the daemon, so
// whenever there is a new one the old ones are looked through.
Status GpuBuffers::forget_freed(Gpu& gpu, const GpuRange& taken, Deadline deadline) {
  for (auto entry = buffers_.begin(); entry != buffers_.end();) {
    const GpuBuffer& buffer = entry->second;
    // What lies on another GPU is looked through when there is a new one of that.
    const bool is_elsewhere = buffer.range.ordinal != gpu.ordinal();
    const auto is_there = [&] {
      const Result<GpuRange> now = gpu.range_of(reinterpret_cast<const void*>(buffer.range.base));
      return now && is_same(*now, buffer.range);
    };
    if (!overlap(buffer.range, taken) && (is_elsewhere || is_there())) {
      ++entry;
      continue;
    }
    ARC_RETURN_IF_ERROR(daemon_.remove(buffer.id, deadline));
    entry = buffers_.erase(entry);
  }
  return {};
}

Status GpuBuffers::forget(const void* address, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("telling the daemon about GPU memory");
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  auto entry = buffers_.upper_bound(where);
  const bool is_known = entry != buffers_.begin() && (--entry)->second.holds(address, 1);
  std::size_t runs = 0;
  // A run may have had the addresses that arcMemAlloc gave out since: no concern of that memory's.
  if (!is_known || !is_of_arc(entry->second.range)) {
    const Result<std::size_t> forgotten = segments_.forget(address, deadline);
    if (!forgotten) return forgotten.error();
    runs = *forgotten;
  }
  if (is_known) {
    ARC_RETURN_IF_ERROR(daemon_.remove(entry->second.id, deadline));
    buffers_.erase(entry);
    return {};
  }
  if (runs != 0) return {};
  return error(ErrorCode::NotFound, Reason::UnknownHandle, address,
               " lies in no GPU memory that is registered");
}

}  // namespace arcomm::client
