#include "daemon/control/quota.h"

#include <algorithm>

#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr std::size_t index(QuotaKind kind) {
  return static_cast<std::size_t>(kind);
}

}  // namespace

std::string_view setting_of(QuotaKind kind) {
  switch (kind) {
    case QuotaKind::Sessions:
      return "quota.sessions";
    case QuotaKind::Communicators:
      return "quota.communicators";
    case QuotaKind::RegisteredBytes:
      return "quota.registered_bytes";
    case QuotaKind::Buffers:
      return "quota.buffers";
    case QuotaKind::Plans:
      return "quota.plans";
  }
  return "quota";
}

Charge::~Charge() {
  book_.give_back(uid_, kind_, amount_);
}

std::uint64_t QuotaBook::limit(QuotaKind kind) const {
  switch (kind) {
    case QuotaKind::Sessions:
      return limits_.sessions;
    case QuotaKind::Communicators:
      return limits_.communicators;
    case QuotaKind::RegisteredBytes:
      return limits_.registered_bytes;
    case QuotaKind::Buffers:
      return limits_.buffers;
    case QuotaKind::Plans:
      return limits_.plans;
  }
  return 0;
}

Result<ChargePtr> QuotaBook::charge(uid_t uid, QuotaKind kind, std::uint64_t amount) {
  const std::uint64_t in_use = used(uid, kind);
  const std::uint64_t allowed = limit(kind);
  if (in_use > allowed || amount > allowed - in_use) {
    metrics_.count_rejected(Reason::Quota);
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "uid ", uid, " has ", in_use, " of ",
                 allowed, " (", setting_of(kind), ") in use and asked for ", amount,
                 " more: release some, or ask the operator to raise ", setting_of(kind));
  }
  auto charge = std::make_shared<Charge>(*this, uid, kind, amount);
  used_[uid][index(kind)] += amount;
  count(kind, static_cast<std::int64_t>(amount));
  return charge;
}

void QuotaBook::give_back(uid_t uid, QuotaKind kind, std::uint64_t amount) {
  const auto found = used_.find(uid);
  if (found == used_.end()) return;
  found->second[index(kind)] -= std::min(amount, found->second[index(kind)]);
  count(kind, -static_cast<std::int64_t>(amount));
  const auto& used = found->second;
  if (std::all_of(used.begin(), used.end(), [](std::uint64_t value) { return value == 0; }))
    used_.erase(found);
}

void QuotaBook::count(QuotaKind kind, std::int64_t amount) {
  switch (kind) {
    case QuotaKind::Sessions:
      metrics_.sessions.add(amount);
      return;
    case QuotaKind::Communicators:
      return;  // one per rank here; the gauge counts communicators
    case QuotaKind::RegisteredBytes:
      metrics_.registered_bytes.add(amount);
      return;
    case QuotaKind::Buffers:
      metrics_.buffers.add(amount);
      return;
    case QuotaKind::Plans:
      metrics_.plans.add(amount);
      return;
  }
}

std::uint64_t QuotaBook::used(uid_t uid, QuotaKind kind) const {
  const auto found = used_.find(uid);
  return found == used_.end() ? 0 : found->second[index(kind)];
}

std::uint64_t QuotaBook::total(QuotaKind kind) const {
  std::uint64_t sum = 0;
  for (const auto& [uid, used] : used_) sum += used[index(kind)];
  return sum;
}

}  // namespace arcomm
