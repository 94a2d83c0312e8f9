// One daemon per runtime folder: an flock held for the process's life, which the kernel gives back
// however it ends. Ownership: the object owns the lock. The file stays: removing it would let two
// daemons lock two files of one name.
#pragma once

#include <string>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class InstanceLock {
 public:
  // Makes the folder where it is missing. AlreadyExists "already running (pid N)" when another
  // daemon holds it.
  static Result<InstanceLock> take(const std::string& runtime_dir);

 private:
  explicit InstanceLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace arcomm
