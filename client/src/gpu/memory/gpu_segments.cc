#include "client/src/gpu/memory/gpu_segments.h"

#include <algorithm>
#include <utility>

namespace arcomm::client {
namespace {

constexpr auto kAll = [](std::uintptr_t, std::uint64_t) { return true; };

// The chunks that the range touches, which lies inside them all.
std::span<const std::unique_ptr<GpuChunk>> touched(const GpuChunks& chunks, std::uintptr_t address,
                                                   std::uint64_t bytes) {
  const auto first = std::ranges::partition_point(
      chunks, [address](const auto& chunk) { return chunk->end() <= address; });
  const auto behind = std::partition_point(
      first, chunks.end(),
      [end = address + bytes](const auto& chunk) { return chunk->base() < end; });
  return {first, behind};
}

bool are_in_place(Gpu& gpu, std::span<const std::unique_ptr<GpuChunk>> chunks) {
  return std::ranges::all_of(chunks, [&gpu](const auto& chunk) { return gpu.is_in_place(*chunk); });
}

Error not_mapped(const void* address, std::uint64_t bytes, std::uint64_t covered) {
  return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, address, " + ", bytes,
               " bytes leaves its memory, which is mapped for ", covered,
               " bytes from there on, or goes on as memory of another kind or GPU");
}

}  // namespace

std::optional<GpuBuffer> GpuSegments::find(Gpu& gpu, const void* address, std::uint64_t bytes) {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  for (const Run& run : runs_) {
    if (!run.buffer.holds(address, bytes) || run.buffer.range.ordinal != gpu.ordinal()) continue;
    if (are_in_place(gpu, touched(run.chunks, where, bytes))) return run.buffer;
  }
  return std::nullopt;
}

Result<GpuChunks> GpuSegments::hold(Gpu& gpu, const void* address, std::uint64_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  GpuChunks chunks;
  for (std::uintptr_t next = begin; chunks.empty() || next - begin < bytes;) {
    const void* const at = reinterpret_cast<const void*>(next);
    if (chunks.size() == kMostChunks) {
      return error(ErrorCode::OutOfRange, Reason::Unsupported, address, " + ", bytes,
                   " bytes lies on more than ", kMostChunks, " chunks of memory (", next - begin,
                   " bytes): reduce it in parts, or take it from one allocation, as "
                   "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False and arcMemAlloc make it");
    }
    const Result<GpuRange> range = gpu.range_of(at);
    if (!range || range->ordinal != gpu.ordinal() || !range->is_mapped)
      return not_mapped(address, bytes, next - begin);
    Result<std::unique_ptr<GpuChunk>> chunk = gpu.hold_chunk(at);
    if (!chunk) return std::move(chunk).error();
    // A mapping that changes under our eyes.
    if ((*chunk)->end() <= next || (!chunks.empty() && (*chunk)->base() != next))
      return not_mapped(address, bytes, next - begin);
    next = (*chunk)->end();
    chunks.push_back(std::move(*chunk));
  }
  return chunks;
}

Result<GpuBuffer> GpuSegments::add(Gpu& gpu, const void* address, std::uint64_t bytes,
                                   Deadline deadline) {
  Result<GpuChunks> chunks = hold(gpu, address, bytes);
  if (!chunks) return std::move(chunks).error();
  Result<BufferId> id = daemon_.add(gpu, *chunks, deadline);
  while (!id && id.error().reason == Reason::Quota && forget_oldest(deadline))
    id = daemon_.add(gpu, *chunks, deadline);
  if (!id) return std::move(id).error();
  const std::uintptr_t base = chunks->front()->base();
  const GpuRange range{.base = base,
                       .bytes = chunks->back()->end() - base,
                       .ordinal = gpu.ordinal(),
                       .is_mapped = true};
  runs_.push_back(
      {.buffer = {.range = range, .id = *id, .in_chunks = true}, .chunks = std::move(*chunks)});
  return runs_.back().buffer;
}

bool GpuSegments::forget_oldest(Deadline deadline) {
  const auto found = std::ranges::find_if(runs_, [&](const Run& run) {
    const Result<bool> removed = daemon_.remove_if_unneeded(run.buffer.id, kAll, deadline);
    return removed && *removed;
  });
  if (found == runs_.end()) return false;
  runs_.erase(found);
  return true;
}

// Best effort: what does not go now is tried again with the next registration.
void GpuSegments::forget_unmapped(Gpu& gpu, Deadline deadline) {
  for (auto run = runs_.begin(); run != runs_.end();) {
    const IsThere is_there = [&](std::uintptr_t address, std::uint64_t bytes) {
      return are_in_place(gpu, touched(run->chunks, address, bytes));
    };
    const GpuRange& range = run->buffer.range;
    if (range.ordinal != gpu.ordinal() || is_there(range.base, range.bytes)) {
      ++run;
      continue;
    }
    const Result<bool> removed = daemon_.remove_if_unneeded(run->buffer.id, is_there, deadline);
    run = removed && *removed ? runs_.erase(run) : run + 1;
  }
}

Result<std::size_t> GpuSegments::forget(const void* address, Deadline deadline) {
  std::size_t forgotten = 0;
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (!run->buffer.holds(address, 1)) {
      ++run;
      continue;
    }
    const Result<bool> removed = daemon_.remove_if_unneeded(run->buffer.id, kAll, deadline);
    if (!removed) return removed.error();
    if (!*removed) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue, "the memory around ", address,
                   " is used by an operation under way, a graph or a plan, of this or of another "
                   "buffer on the same chunks: wait for it, or let it go, first");
    }
    run = runs_.erase(run);
    ++forgotten;
  }
  return forgotten;
}

}  // namespace arcomm::client
