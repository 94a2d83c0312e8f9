#include "client/src/gpu/memory/gpu_memory_check.h"

namespace arcomm::client {

Status check_gpu(const Gpu& gpu, const GpuRange& range, const void* address) {
  if (range.ordinal == gpu.ordinal()) return {};
  return error(ErrorCode::InvalidArgument, Reason::BadValue, address, " is memory of GPU ",
               range.ordinal, " and the communicator's rank is on GPU ", gpu.ordinal(), " (",
               gpu.uuid(), "): make the rank's GPU current when it calls arcCommInitRank");
}

Result<GpuRange> memory_around(Gpu& gpu, const void* address, std::uint64_t bytes) {
  Result<GpuRange> found = gpu.range_of(address);
  if (!found) return found;
  ARC_RETURN_IF_ERROR(check_gpu(gpu, *found, address));
  const std::uintptr_t wanted_end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  while (found->base + found->bytes < wanted_end) {
    const std::uintptr_t end = found->base + found->bytes;
    const Result<GpuRange> next =
        found->is_mapped ? gpu.range_of(reinterpret_cast<const void*>(end)) : found;
    const bool goes_on = next && next->ordinal == gpu.ordinal() && next->is_mapped &&
                         next->base == end && next->bytes != 0;
    if (!goes_on) {
      return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, address, " + ", bytes,
                   " bytes leaves its memory, which ends ",
                   end - reinterpret_cast<std::uintptr_t>(address), " bytes behind it");
    }
    found->bytes += next->bytes;
  }
  return found;
}

}  // namespace arcomm::client
