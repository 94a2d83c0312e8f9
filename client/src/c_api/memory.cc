#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/gpu/in_stream/in_stream_uses.h"
#include "client/src/gpu/memory/gpu_allocations.h"
#include "client/src/host/memory/buffer.h"
#include "client/src/session/library.h"

namespace arcomm::client {
namespace {

// In every session that knows the memory; one whose daemon is gone has nothing left to forget.
Status forget_gpu_memory(void* address, Deadline deadline, bool* was_known) {
  const std::shared_ptr<GpuAllocation> ours = gpu_allocations().find(address);
  const std::uint64_t bytes = ours ? ours->bytes : 1;
  ARC_RETURN_IF_ERROR(InStreamUses::check_unused(address, bytes));
  if (ours) InStreamUses::forget_memory(address, bytes);  // if it goes, other memory may come there
  for (const std::shared_ptr<Session>& session : Session::all()) {
    if (session->gpus() == nullptr || session->lost()) continue;
    Status forgotten = session->gpus()->buffers().forget(address, deadline);
    if (forgotten) *was_known = true;
    if (!forgotten && forgotten.error().code != ErrorCode::NotFound) return forgotten;
  }
  return {};
}

Status free_gpu_memory(void* address) {
  bool was_known = false;
  ARC_RETURN_IF_ERROR(
      forget_gpu_memory(address, Library::instance().control_deadline(), &was_known));
  if (gpu_allocations().take(address)) return {};
  return error(ErrorCode::NotFound, Reason::UnknownHandle, address, " was freed by another thread");
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcMemAlloc(void** ptr, size_t bytes) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    *ptr = nullptr;
    if (bytes == 0 || bytes > PTRDIFF_MAX) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot allocate ", bytes,
                   " bytes");
    }
    const Deadline deadline = Library::instance().control_deadline();
    Result<std::shared_ptr<Session>> session = Library::instance().session(deadline);
    if (!session) return std::move(session).error();
    GpuSession* const gpus = (*session)->gpus();
    Result<void*> memory = gpus != nullptr ? gpus->allocate(bytes, deadline)
                                           : allocate_memory(bytes, **session, deadline);
    if (!memory) return std::move(memory).error();
    *ptr = *memory;
    return {};
  });
}

arcResult_t arcMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return {};
    if (gpu_allocations().find(ptr)) return free_gpu_memory(ptr);
    return free_memory(ptr, Library::instance().control_deadline());
  });
}

arcResult_t arcMemRegister(void* ptr, size_t bytes) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    if (bytes == 0 || bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(ptr)) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot register ", bytes,
                   " bytes at ", ptr);
    }
    const Deadline deadline = Library::instance().control_deadline();
    Result<std::shared_ptr<Session>> session = Library::instance().session(deadline);
    if (!session) return std::move(session).error();
    GpuSession* const gpus = (*session)->gpus();
    return gpus != nullptr ? gpus->register_ahead(ptr, bytes, deadline)
                           : register_memory(ptr, bytes, **session, deadline);
  });
}

arcResult_t arcMemDeregister(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    const Deadline deadline = Library::instance().control_deadline();
    bool was_known = false;
    ARC_RETURN_IF_ERROR(forget_gpu_memory(ptr, deadline, &was_known));
    if (was_known) return {};
    return deregister_memory(ptr, deadline);
  });
}

}  // extern "C"
