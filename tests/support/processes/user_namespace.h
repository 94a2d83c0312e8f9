// A user namespace as somebody without rights makes one, and as newuidmap fills it in for them: a
// range of uids of the machine's, which are all theirs. Whoever enters it (ChildOptions) has the
// uid of the range to everybody outside, the daemon included, and keeps supplementary groups.
// Ownership: the process that keeps it alive. Thread: one at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::support {

class UserNamespace {
 public:
  struct Options {
    uid_t person = 0;  // who makes it
    gid_t group = 0;   // the only one
    uid_t first = 0;   // what 0 inside of it is outside; of gids, too
    std::uint32_t count = 0;
  };
  // PermissionDenied where the kernel lets nobody make one, or this process write its range.
  static Result<UserNamespace> make(const Options& options);
  UserNamespace(UserNamespace&& other) noexcept;
  UserNamespace& operator=(UserNamespace&&) = delete;
  ~UserNamespace();

  int fd() const { return fd_.get(); }
  const Options& options() const { return options_; }

 private:
  UserNamespace(const Options& options, pid_t keeper) : options_(options), keeper_(keeper) {}

  Options options_;
  pid_t keeper_;
  UniqueFd fd_;
};

}  // namespace arcomm::support
