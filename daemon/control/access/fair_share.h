// Who may hold how many of what the node has only so many of. A limit per uid alone limits nobody:
// one person may have 65,536 uids (a user namespace). So uids are counted in tenants, an account or
// a range of uids each (telemetry/uid_range.h: one user namespace is two at most), and a tenant
// may hold no more than what is still free: one alone gets half, each further one half of the
// rest, and somebody who has nothing yet finds room. Thread: one at a time.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {

class FairShare {
 public:
  struct Limits {
    std::uint64_t node = 0, per_uid = 0;
  };
  enum class Answer : std::uint8_t { Yes, UidHasMost, NodeIsShort };

  explicit FairShare(Limits limits) : limits_(limits) {}

  Answer ask(uid_t uid) const {
    if (held(by_uid_, uid) >= limits_.per_uid) return Answer::UidHasMost;
    const std::uint64_t free = limits_.node - std::min(limits_.node, total_);
    return held(by_tenant_, first_of_range(uid)) < free ? Answer::Yes : Answer::NodeIsShort;
  }
  void take(uid_t uid) {
    ++by_uid_[uid];
    ++by_tenant_[first_of_range(uid)];
    ++total_;
  }
  void give_back(uid_t uid) {
    if (!drop(by_uid_, uid)) return;
    drop(by_tenant_, first_of_range(uid));
    --total_;
  }

  const Limits& limits() const { return limits_; }
  std::uint64_t total() const { return total_; }
  std::uint64_t of_uid(uid_t uid) const { return held(by_uid_, uid); }

 private:
  using Counts = std::unordered_map<std::uint32_t, std::uint64_t>;  // none is 0

  static std::uint64_t held(const Counts& counts, std::uint32_t key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  }
  static bool drop(Counts& counts, std::uint32_t key) {
    const auto found = counts.find(key);
    if (found == counts.end()) return false;
    if (--found->second == 0) counts.erase(found);
    return true;
  }

  Limits limits_;
  Counts by_uid_, by_tenant_;
  std::uint64_t total_ = 0;
};

}  // namespace arcomm
