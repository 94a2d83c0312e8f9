// How many failed arrivals each user has on the boards of one worker, where they stay until every
// rank has come and heard of it. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

namespace arcomm {

class FailedShare {
 public:
  // Of one user, on all boards: a user with many communicators could pile up that many times what
  // one of them may hold.
  static constexpr std::uint64_t kMost = 1024;

  void add(uid_t uid) { ++held_[uid]; }
  void drop(uid_t uid) {
    const auto held = held_.find(uid);
    if (held != held_.end() && --held->second == 0) held_.erase(held);
  }
  std::uint64_t held(uid_t uid) const {
    const auto held = held_.find(uid);
    return held == held_.end() ? 0 : held->second;
  }

 private:
  std::unordered_map<uid_t, std::uint64_t> held_;
};

}  // namespace arcomm
