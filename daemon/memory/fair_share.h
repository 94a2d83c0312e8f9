// Who may hold how many of what the node has only so many of. A limit per uid alone limits nobody:
// one person may have 65,536 uids (a user namespace). So uids are counted in tenants, too, an
// account or a range of uids each (telemetry/uid_range.h: one user namespace is two at most), and a
// tenant may hold `greed` times what is still free: with 1, one alone gets half, each further one
// half of the rest, and somebody who has nothing yet finds room. Thread: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {

class FairShare {
 public:
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  struct Limits {
    std::uint64_t node = kNoLimit, per_uid = kNoLimit;
    std::uint64_t greed = 1;
  };
  enum class Answer : std::uint8_t { Yes, UidHasMost, NodeIsShort };

  FairShare() = default;
  explicit FairShare(Limits limits) : limits_(limits) {}

  Answer ask(uid_t uid, std::uint64_t amount = 1) const;
  // Whether the limits allow it to one where nobody has anything.
  bool could_have(uid_t uid, std::uint64_t amount) const {
    return FairShare(limits_).ask(uid, amount) == Answer::Yes;
  }
  // Whatever ask() says of it.
  void take(uid_t uid, std::uint64_t amount = 1);
  // No more than was taken.
  void give_back(uid_t uid, std::uint64_t amount = 1);

  // They hold for what is asked for from now on; nothing is taken back.
  void use_limits(Limits limits) { limits_ = limits; }
  const Limits& limits() const { return limits_; }
  std::uint64_t total() const { return total_; }
  std::uint64_t of_uid(uid_t uid) const { return held(by_uid_, uid); }
  std::uint64_t of_tenant(uid_t uid) const { return held(by_tenant_, first_of_range(uid)); }
  std::size_t tenants() const { return by_tenant_.size(); }
  struct Holder {
    uid_t uid = 0;
    std::uint64_t amount = 0;
  };
  // The uid that has the most, the lowest of several; an amount of 0: nobody has any.
  Holder find_largest() const;

 private:
  using Amounts = std::unordered_map<std::uint32_t, std::uint64_t>;  // none is 0

  static std::uint64_t held(const Amounts& amounts, std::uint32_t key) {
    const auto found = amounts.find(key);
    return found == amounts.end() ? 0 : found->second;
  }

  Limits limits_;
  Amounts by_uid_, by_tenant_;
  std::uint64_t total_ = 0;
};

}  // namespace arcomm
