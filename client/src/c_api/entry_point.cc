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

Result<std::shared_ptr<Member>> find_member(arcComm_t handle) {
  // Handlers that run at exit, and destructors of a thread's keys, may call when `last` is gone.
  thread_local bool is_over = false;
  struct Found {
    arcComm_t handle = nullptr;
    std::uint64_t changes = 0;
    std::weak_ptr<Member> member;  // a thread that calls no more keeps nothing
    ~Found() { is_over = true; }
  };
  const auto search = [&]() -> Result<std::shared_ptr<Member>> {
    const Result<std::shared_ptr<Communicator>> communicator = find(handle);
    if (!communicator) return communicator.error();
    return (*communicator)->member();
  };
  if (is_over) return search();
  thread_local Found last;
  const std::uint64_t changes = communicators().changes();
  if (handle == last.handle && changes == last.changes) {
    if (std::shared_ptr<Member> member = last.member.lock()) return member;
  }
  Result<std::shared_ptr<Member>> member = search();
  if (!member) return member;
  last.handle = handle;
  last.changes = changes;
  last.member = *member;
  return member;
}

std::chrono::milliseconds operation_timeout() {
  return std::chrono::milliseconds(Library::instance().timeout_ms());
}

}  // namespace arcomm::client
