// How often something may happen: `burst` times at once, and then once in `interval_ns`. Counts
// time ahead instead of tokens: it says when, and may be asked for more than there is. Thread: one.
#pragma once

#include <algorithm>
#include <cstdint>

namespace arcomm {

struct BucketRate {
  std::uint64_t interval_ns = 0;
  std::uint64_t burst = 1;
};

class TokenBucket {
 public:
  // When `cost` times could be had: now, or later.
  std::uint64_t due_ns(const BucketRate& rate, std::uint64_t now_ns, std::uint64_t cost = 1) const {
    const std::uint64_t paid = std::max(paid_until_ns_, now_ns) + cost * rate.interval_ns;
    const std::uint64_t ahead = rate.burst * rate.interval_ns;
    return std::max(now_ns, paid > ahead ? paid - ahead : 0);
  }
  void take(const BucketRate& rate, std::uint64_t now_ns, std::uint64_t cost = 1) {
    paid_until_ns_ = std::max(paid_until_ns_, now_ns) + cost * rate.interval_ns;
  }
  bool is_full(std::uint64_t now_ns) const { return paid_until_ns_ <= now_ns; }

 private:
  std::uint64_t paid_until_ns_ = 0;
};

}  // namespace arcomm
