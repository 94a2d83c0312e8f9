#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/buffer.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/library.h"

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
    Result<void*> memory = allocate_memory(bytes, **session, deadline);
    if (!memory) return std::move(memory).error();
    *ptr = *memory;
    return {};
  });
}

arcResult_t arcMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return {};
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
    return register_memory(ptr, bytes, **session, deadline);
  });
}

arcResult_t arcMemDeregister(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    return deregister_memory(ptr, Library::instance().control_deadline());
  });
}

}  // extern "C"
