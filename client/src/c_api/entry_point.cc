#include "client/src/c_api/entry_point.h"

#include <cstdint>

#include "client/src/session/library.h"

namespace arcomm::client {

LastError& last_error() {
  thread_local LastError last;
  return last;
}

arcResult_t failed(Error why) {
  LastError& last = last_error();
  last.seq = failed_seq();
  last.error = std::move(why);
  return static_cast<arcResult_t>(last.error.code);
}

Error null_argument(const char* name) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, name, " is null");
}

Result<std::shared_ptr<Communicator>> find(arcComm_t handle) {
  std::shared_ptr<Communicator> found =
      communicators().find(reinterpret_cast<std::uintptr_t>(handle));
  if (found) return found;
  if (handle == nullptr) return null_argument("comm");
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "comm ", static_cast<void*>(handle),
               " is not a communicator, or was destroyed");
}

std::chrono::milliseconds operation_timeout() {
  return std::chrono::milliseconds(Library::instance().timeout_ms());
}

}  // namespace arcomm::client
