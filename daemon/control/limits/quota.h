// What each uid has taken of the daemon, how much it may take, and how much there is on the node
// for all of them: while much is free a uid gets up to its own quota, and when the node is short no
// more than a fair share (daemon/memory/fair_share.h). A charge is an object: what it paid for goes
// with its destruction, so that no error path can leak quota. Thread: the control loop. A Charge
// must not outlive its QuotaBook.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "config/settings.h"
#include "daemon/control/limits/machine_limits.h"
#include "daemon/memory/fair_share.h"
#include "proto/status.h"

namespace arcomm {

class Metrics;

enum class QuotaKind : std::uint8_t {
  Sessions,
  Communicators,    // ranks of them
  RegisteredBytes,  // of whatever memory
  HostBytes,        // reserved: registered memory that is not a GPU's, whether its pages are there
  UnfilledBytes,    // of HostBytes, those whose pages were not there when they were registered
  Buffers,
  Mappings,  // of vm.max_map_count
  Plans,
  DevicePlans,  // those of sessions on GPUs, whose table is one for all
};
inline constexpr std::size_t kQuotaKinds = 9;

// What people read: "sessions".
std::string_view name_of(QuotaKind kind);
// What sets its limit per uid, "quota.sessions", or for all, "quota.node_sessions"; "" for none.
std::string_view setting_of(QuotaKind kind);
std::string_view node_setting_of(QuotaKind kind);
bool is_in_bytes(QuotaKind kind);

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
  QuotaBook(const Settings::Quota& limits, const MachineFacts& machine, Metrics& metrics);

  // ResourceExhausted naming the limit, whose share is used up, what is in use, what was asked and
  // the setting. Reason Quota; OutOfMemory where it is the node's memory.
  Result<ChargePtr> charge(uid_t uid, QuotaKind kind, std::uint64_t amount = 1);
  // How much of it is in use, by whom, and the limits in force.
  const FairShare& shares(QuotaKind kind) const { return shares_[static_cast<std::size_t>(kind)]; }
  std::uint64_t used(uid_t uid, QuotaKind kind) const { return shares(kind).of_uid(uid); }
  std::uint64_t total(QuotaKind kind) const { return shares(kind).total(); }
  // What pages could be had now: the limit of UnfilledBytes, until the next call.
  void note_available(std::uint64_t bytes);
  // New limits hold for new charges; nothing is taken back.
  void use_limits(const Settings::Quota& limits);

 private:
  friend class Charge;
  void give_back(uid_t uid, QuotaKind kind, std::uint64_t amount);
  void count(QuotaKind kind, std::int64_t amount);
  Error refusal(uid_t uid, QuotaKind kind, std::uint64_t amount, FairShare::Answer why) const;

  MachineFacts machine_;
  Metrics& metrics_;
  std::array<FairShare, kQuotaKinds> shares_;
};

}  // namespace arcomm
