// Uids that may be one person's. What is shared among uids fairly is shared among these: a user
// namespace gives one person 65,536 of them.
#pragma once

#include <sys/types.h>

namespace arcomm {

// Accounts of a machine lie below it, and stand for themselves. Above it are the ranges that are
// handed out whole (subuid, containers), and large directories.
inline constexpr uid_t kUidRange = 65'536;

// The first uid of so many in a row, which stands for all of them.
constexpr uid_t first_of_range(uid_t uid) {
  return uid / kUidRange == 0 ? uid : uid / kUidRange * kUidRange;
}

}  // namespace arcomm
