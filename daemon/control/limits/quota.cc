#include "daemon/control/limits/quota.h"

#include <optional>

#include "daemon/telemetry/metrics/metrics.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm {
namespace {

constexpr std::size_t index(QuotaKind kind) {
  return static_cast<std::size_t>(kind);
}

struct QuotaRow {
  std::string_view name, setting, node_setting;
  bool in_bytes = false;
  // What one alone may have: so many times what it leaves free.
  std::uint64_t greed = 1;
  std::optional<NodeResource> resource = {};
};

// In the order of QuotaKind.
constexpr std::array<QuotaRow, kQuotaKinds> kRows{{
    {.name = "sessions",
     .setting = "quota.sessions",
     .node_setting = "quota.node_sessions",
     .resource = NodeResource::Sessions},
    {.name = "communicators",
     .setting = "quota.communicators",
     .node_setting = "quota.node_communicators",
     .resource = NodeResource::CommunicatorRanks},
    {.name = "registered_bytes",
     .setting = "quota.registered_bytes",
     .node_setting = "",
     .in_bytes = true},
    // On a node that serves one tenant, most of its memory shall be that one's.
    {.name = "host_bytes",
     .setting = "",
     .node_setting = "quota.node_host_bytes",
     .in_bytes = true,
     .greed = 3,
     .resource = NodeResource::HostBytes},
    {.name = "unfilled_bytes", .setting = "", .node_setting = "", .in_bytes = true, .greed = 3},
    {.name = "buffers", .setting = "quota.buffers", .node_setting = ""},
    {.name = "mappings",
     .setting = "",
     .node_setting = "quota.node_mappings",
     .resource = NodeResource::Mappings},
    {.name = "plans",
     .setting = "quota.plans",
     .node_setting = "quota.node_plans",
     .resource = NodeResource::Plans},
    {.name = "device_plans",
     .setting = "",
     .node_setting = "",
     .greed = 3,
     .resource = NodeResource::DevicePlans},
}};

FairShare::Limits limits_of(QuotaKind kind, const Settings::Quota& quota) {
  const auto limits = [kind](std::uint64_t node, std::uint64_t per_uid) {
    return FairShare::Limits{.node = node, .per_uid = per_uid, .greed = kRows[index(kind)].greed};
  };
  constexpr std::uint64_t kNone = FairShare::kNoLimit;
  switch (kind) {
    case QuotaKind::Sessions:
      return limits(quota.node_sessions, quota.sessions);
    case QuotaKind::Communicators:
      return limits(quota.node_communicators, quota.communicators);
    case QuotaKind::RegisteredBytes:
      return limits(kNone, quota.registered_bytes);
    case QuotaKind::HostBytes:
      return limits(quota.node_host_bytes, kNone);
    case QuotaKind::UnfilledBytes:
      return limits(kNone, kNone);
    case QuotaKind::Buffers:
      return limits(kNone, quota.buffers);
    case QuotaKind::Mappings:
      return limits(quota.node_mappings, kNone);
    case QuotaKind::Plans:
      return limits(quota.node_plans, quota.plans);
    case QuotaKind::DevicePlans:
      return limits(kMaxDevicePlans, kNone);
  }
  return {};
}

}  // namespace

std::string_view name_of(QuotaKind kind) {
  return kRows[index(kind)].name;
}
std::string_view setting_of(QuotaKind kind) {
  return kRows[index(kind)].setting;
}
std::string_view node_setting_of(QuotaKind kind) {
  return kRows[index(kind)].node_setting;
}
bool is_in_bytes(QuotaKind kind) {
  return kRows[index(kind)].in_bytes;
}

Charge::~Charge() {
  book_.give_back(uid_, kind_, amount_);
}

QuotaBook::QuotaBook(const Settings::Quota& limits, const MachineFacts& machine, Metrics& metrics)
    : machine_(machine), metrics_(metrics) {
  use_limits(limits);
}

void QuotaBook::use_limits(const Settings::Quota& limits) {
  const Settings::Quota filled = fill_node_limits(limits, machine_);
  for (std::size_t i = 0; i < kQuotaKinds; ++i) {
    const FairShare::Limits limits_of_kind = limits_of(static_cast<QuotaKind>(i), filled);
    shares_[i].use_limits(limits_of_kind);
    if (kRows[i].resource)
      metrics_.node(*kRows[i].resource).limit.set(static_cast<std::int64_t>(limits_of_kind.node));
  }
}

void QuotaBook::note_available(std::uint64_t bytes) {
  FairShare::Limits limits = shares(QuotaKind::UnfilledBytes).limits();
  limits.node = bytes;
  shares_[index(QuotaKind::UnfilledBytes)].use_limits(limits);
}

Result<ChargePtr> QuotaBook::charge(uid_t uid, QuotaKind kind, std::uint64_t amount) {
  FairShare& shares = shares_[index(kind)];
  if (const FairShare::Answer answer = shares.ask(uid, amount); answer != FairShare::Answer::Yes) {
    Error why = refusal(uid, kind, amount, answer);
    metrics_.count_rejected(why.reason);
    return why;
  }
  auto charge = std::make_shared<Charge>(*this, uid, kind, amount);
  shares.take(uid, amount);
  count(kind, static_cast<std::int64_t>(amount));
  return charge;
}

Error QuotaBook::refusal(uid_t uid, QuotaKind kind, std::uint64_t amount,
                         FairShare::Answer why) const {
  const FairShare& share = shares(kind);
  if (why == FairShare::Answer::UidHasMost) {
    const std::string_view setting = setting_of(kind);
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "uid ", uid, " has ",
                 share.of_uid(uid), " of ", share.limits().per_uid, " (", setting,
                 ") in use and asked for ", amount,
                 " more: release some, or ask the operator to raise ", setting);
  }
  const bool is_memory = kind == QuotaKind::HostBytes || kind == QuotaKind::UnfilledBytes;
  const Reason reason = is_memory ? Reason::OutOfMemory : Reason::Quota;
  const std::string_view setting = node_setting_of(kind);
  return error(ErrorCode::ResourceExhausted, reason, "the node is short of ", name_of(kind),
               ": all users have ", share.total(), " of ", share.limits().node,
               setting.empty() ? "" : " (", setting, setting.empty() ? "" : ")",
               " in use, of which uid ", uid, " and its range have ", share.of_tenant(uid),
               ", and ", amount,
               " more would be above their fair share of it: release some, or ask the operator",
               setting.empty() ? " who has the others" : " to raise ", setting);
}

void QuotaBook::give_back(uid_t uid, QuotaKind kind, std::uint64_t amount) {
  shares_[index(kind)].give_back(uid, amount);
  count(kind, -static_cast<std::int64_t>(amount));
}

void QuotaBook::count(QuotaKind kind, std::int64_t amount) {
  if (const std::optional<NodeResource> resource = kRows[index(kind)].resource)
    metrics_.node(*resource).used.add(amount);
  if (kind == QuotaKind::Sessions) metrics_.sessions.add(amount);
  if (kind == QuotaKind::RegisteredBytes) metrics_.registered_bytes.add(amount);
  if (kind == QuotaKind::Buffers) metrics_.buffers.add(amount);
  if (kind == QuotaKind::Plans) metrics_.plans.add(amount);
}

}  // namespace arcomm
