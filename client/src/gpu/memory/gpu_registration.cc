#include "client/src/gpu/memory/gpu_registration.h"

#include <chrono>
#include <utility>
#include <vector>

#include "client/src/gpu/memory/gpu_allocations.h"

namespace arcomm::client {
namespace {

// What was offered and not registered counts against the session's room. The deadline that it was
// offered under may be what made it fail.
constexpr std::chrono::milliseconds kWithdrawFor{20};

Error too_old(std::size_t chunks) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported, "this memory lies on ", chunks,
               " chunks, and the daemon, older than this library, registers memory of one only: "
               "upgrade it, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False");
}

}  // namespace

GpuBuffers::Daemon GpuRegistration::of_buffers() {
  return {
      .add = [this](Gpu& gpu, const GpuRange& range,
                    Deadline deadline) { return add(gpu, range, deadline); },
      .remove = [this](BufferId buffer, Deadline deadline) { return remove(buffer, deadline); }};
}

GpuSegments::Daemon GpuRegistration::of_chunks() {
  return {.add = [this](Gpu& gpu, const GpuChunks& chunks,
                        Deadline deadline) { return add_chunks(gpu, chunks, deadline); },
          .remove_if_unneeded =
              [this](BufferId buffer, const IsThere& is_there, Deadline deadline) {
                return remove_if_unneeded(buffer, is_there, deadline);
              }};
}

Result<BufferId> GpuRegistration::add(Gpu& gpu, const GpuRange& range, Deadline deadline) {
  NewGpuBuffer wanted{.device = gpu.uuid(), .bytes = range.bytes};
  GpuIpcHandle handle;
  if (const std::shared_ptr<GpuAllocation> ours =
          gpu_allocations().find(reinterpret_cast<const void*>(range.base))) {
    const Result<std::uint64_t> offered = descriptors_.offer(ours->memory.get(), deadline);
    if (!offered) return offered.error();
    wanted.offered_fd = *offered;
  } else {
    const Result<GpuIpcHandle> exported = gpu.export_memory(range);
    if (!exported) return exported.error();
    handle = *exported;
    wanted.ipc_handle = {reinterpret_cast<const char*>(handle.data()), handle.size()};
  }
  const Result<SharedBuffer> shared = control_.register_gpu_buffer(attached_.key, wanted, deadline);
  if (!shared) return shared.error();
  return shared->buffer;
}

Status GpuRegistration::remove(BufferId buffer, Deadline deadline) {
  for (const std::shared_ptr<GpuMember>& member : members_.live()) {
    ARC_RETURN_IF_ERROR(member->drop_plans_of(buffer, deadline));
  }
  return release(buffer, deadline);
}

// All are asked before any drops a plan. One may come to need its plans after it was asked, so each
// asks itself again as it drops them; what others have dropped by then is made again on demand. A
// plan that is made after that keeps the buffer: the daemon does not release it.
Result<bool> GpuRegistration::remove_if_unneeded(BufferId buffer, const IsThere& is_there,
                                                 Deadline deadline) {
  const std::vector<std::shared_ptr<GpuMember>> asked = members_.live();
  for (const std::shared_ptr<GpuMember>& member : asked) {
    if (!member->may_drop_plans_of(buffer, is_there, deadline)) return false;
  }
  for (const std::shared_ptr<GpuMember>& member : asked) {
    Result<bool> dropped = member->drop_unneeded_plans_of(buffer, is_there, deadline);
    if (!dropped || !*dropped) return dropped;
  }
  ARC_RETURN_IF_ERROR(release(buffer, deadline));
  return true;
}

Status GpuRegistration::release(BufferId buffer, Deadline deadline) {
  plans_.remove_late(deadline);  // nobody else knows of those, and they hold it
  Status released = control_.release_buffer(attached_.key, buffer, deadline);
  if (!released && is_gone(released.error())) return {};
  return released;
}

// A descriptor at a time is open here; the daemon keeps them until it has all.
Result<BufferId> GpuRegistration::add_chunks(Gpu& gpu, const GpuChunks& chunks, Deadline deadline) {
  if (chunks.size() > attached_.max_chunks && chunks.size() != 1) {
    if (attached_.max_chunks == 0) return too_old(chunks.size());
    return error(ErrorCode::OutOfRange, Reason::Unsupported, "this memory lies on ", chunks.size(),
                 " chunks and the daemon registers at most ", attached_.max_chunks,
                 " at once: reduce it in parts, or set "
                 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False");
  }
  NewGpuBuffer wanted{.device = gpu.uuid()};
  std::vector<std::uint64_t> offered;
  const auto registered = [&]() -> Result<SharedBuffer> {
    for (const std::unique_ptr<GpuChunk>& chunk : chunks) {
      const Result<MemoryChunk> exported = gpu.export_chunk(*chunk);
      if (!exported) return exported.error();
      NewGpuChunk one{.bytes = exported->bytes, .fabric = exported->fabric};
      if (exported->memory) {
        const Result<std::uint64_t> ticket = descriptors_.offer(exported->memory.get(), deadline);
        if (!ticket) return ticket.error();
        one.offered_fd = *ticket;
        offered.push_back(*ticket);
      }
      wanted.bytes += exported->bytes;
      wanted.chunks.push_back(one);
    }
    if (wanted.chunks.size() == 1 && !offered.empty()) {  // as any daemon understands it
      wanted.offered_fd = offered.front();
      wanted.chunks.clear();
    } else if (attached_.max_chunks == 0) {
      return too_old(chunks.size());
    }
    return control_.register_gpu_buffer(attached_.key, wanted, deadline);
  };
  const Result<SharedBuffer> shared = registered();
  if (shared) return shared->buffer;
  if (!offered.empty()) {
    static_cast<void>(
        control_.withdraw_offers(attached_.key, offered, Deadline::after(kWithdrawFor)));
  }
  return shared.error();
}

}  // namespace arcomm::client
