// What each uid has taken of the daemon, and how much it may take. A charge is an object: what it
// paid for goes with its destruction, so that no error path can leak quota. Thread: the control
// loop. A Charge must not outlive its QuotaBook.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "config/settings.h"
#include "proto/status.h"

namespace arcomm {

class Metrics;

enum class QuotaKind : std::uint8_t { Sessions, Communicators, RegisteredBytes, Buffers, Plans };
inline constexpr std::size_t kQuotaKinds = 5;

std::string_view setting_of(QuotaKind kind);  // "quota.sessions"

class QuotaBook;

class Charge {
 public:
  Charge(QuotaBook& book, uid_t uid, QuotaKind kind, std::uint64_t amount)
      : book_(book), uid_(uid), kind_(kind), amount_(amount) {}
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  QuotaBook& book_;
  uid_t uid_;
  QuotaKind kind_;
  std::uint64_t amount_;
};

// Shared because it travels in callbacks, which are copyable; it has one owner at a time.
using ChargePtr = std::shared_ptr<Charge>;

class QuotaBook {
 public:
  QuotaBook(const Settings::Quota& limits, Metrics& metrics) : limits_(limits), metrics_(metrics) {}

  // ResourceExhausted/Quota naming the quota, what is in use, what was asked and the setting.
  Result<ChargePtr> charge(uid_t uid, QuotaKind kind, std::uint64_t amount = 1);
  std::uint64_t used(uid_t uid, QuotaKind kind) const;
  std::uint64_t total(QuotaKind kind) const;
  // New limits hold for new charges; nothing is taken back.
  void use_limits(const Settings::Quota& limits) { limits_ = limits; }

 private:
  friend class Charge;
  void give_back(uid_t uid, QuotaKind kind, std::uint64_t amount);
  void count(QuotaKind kind, std::int64_t amount);
  std::uint64_t limit(QuotaKind kind) const;

  Settings::Quota limits_;
  Metrics& metrics_;
  std::unordered_map<uid_t, std::array<std::uint64_t, kQuotaKinds>> used_;
};

}  // namespace arcomm
