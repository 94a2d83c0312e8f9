// One daemon per runtime folder: an flock held for the process's life, which the kernel gives back
// however it ends. Ownership: the object owns the lock. The file stays: removing it would let two
// daemons lock two files of one name.
//
// Whoever can open the file, to read alone, can lock it: it is this user's alone (0600). One that
// others could open, left by a version or made by a umask that let them, is replaced: somebody may
// hold it open since then and wait for the lock.
#pragma once

#include <string>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class InstanceLock {
 public:
  // Makes the folder where it is missing (own_folder). AlreadyExists "already running (pid N)" when
  // another daemon holds the lock.
  static Result<InstanceLock> take(const std::string& runtime_dir);

 private:
  explicit InstanceLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace arcomm
