// Operations that clients have run within their own calls (proto/host/in_call.h), as their
// processes say: for people, and believed no further than a processor could have done. Thread: any;
// one mutex.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "proto/host/in_call.h"

namespace arcomm {

class InCallCounts {
 public:
  using Clock = std::chrono::steady_clock;
  struct Sum {
    std::uint64_t operations = 0, bytes = 0;  // of all ranks
    Sum& operator+=(const Sum& more) {
      operations += more.operations;
      bytes += more.bytes;
      return *this;
    }
  };

  // `control` stays mapped until remove(), whose sum stays in that of all.
  void add(const InCallControl& control, std::uint32_t ranks);
  void remove(const InCallControl& control);
  Sum of(const InCallControl& control) const;
  std::uint64_t operations_of(const InCallControl& control, std::uint32_t rank) const;
  Sum of_all() const;

 private:
  // No call takes less.
  static constexpr std::uint64_t kLeastNs = 50;
  struct Counted {
    std::uint32_t ranks = 0;
    Clock::time_point since;
  };
  static std::uint64_t operations(const InCallControl& control, const Counted& counted,
                                  std::uint32_t rank);
  static Sum read(const InCallControl& control, const Counted& counted);

  mutable std::mutex mutex_;
  std::unordered_map<const InCallControl*, Counted> live_;
  Sum ended_;
};

}  // namespace arcomm
