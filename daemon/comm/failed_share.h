// How many failed arrivals each user has on the boards of one worker, where they stay until every
// rank has come and heard of it. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {

class FailedShare {
 public:
  // Of one user, on all boards: a user with many communicators could pile up that many times what
  // one of them may hold.
  static constexpr std::uint64_t kMost = 1024;
  // Of a range of uids, which may be one person's. It may also be those of a directory's users:
  // where the range has more, whoever has a few loses no communicator for what the others pile up.
  static constexpr std::uint64_t kMostOfRange = 8 * kMost;
  static constexpr std::uint64_t kFew = 128;

  void add(uid_t uid) {
    ++of_uid_[uid];
    ++of_range_[first_of_range(uid)];
  }
  void drop(uid_t uid) {
    drop_from(of_uid_, uid);
    drop_from(of_range_, first_of_range(uid));
  }
  std::uint64_t held(uid_t uid) const { return held_in(of_uid_, uid); }
  bool is_over(uid_t uid) const {
    const std::uint64_t own = held(uid);
    return own > kMost || (own > kFew && held_in(of_range_, first_of_range(uid)) > kMostOfRange);
  }

 private:
  using Held = std::unordered_map<uid_t, std::uint64_t>;  // none is 0
  static void drop_from(Held& all, uid_t key) {
    const auto held = all.find(key);
    if (held != all.end() && --held->second == 0) all.erase(held);
  }
  static std::uint64_t held_in(const Held& all, uid_t key) {
    const auto held = all.find(key);
    return held == all.end() ? 0 : held->second;
  }

  Held of_uid_, of_range_;
};

}  // namespace arcomm
