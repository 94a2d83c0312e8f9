#include "daemon/control/calls/status/limit_status.h"

#include <string>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// On the wire 0 is no limit. None that is in force is 0.
std::uint64_t shown(std::uint64_t limit) {
  return limit == FairShare::kNoLimit ? 0 : limit;
}

void add(std::string name, bool in_bytes, const FairShare& shares, v1::StatusReply& status) {
  v1::LimitStatus& limit = *status.add_limits();
  limit.set_name(std::move(name));
  limit.set_in_bytes(in_bytes);
  limit.set_used(shares.total());
  limit.set_of_node(shown(shares.limits().node));
  limit.set_of_uid(shown(shares.limits().per_uid));
  limit.set_users(shares.tenants());
  const FairShare::Holder most = shares.find_largest();
  limit.set_most(most.amount);
  limit.set_most_uid(most.uid);
}

}  // namespace

void add_limits(const NodeControl& control, const AccessShares& access, v1::StatusReply& status) {
  if (access.connections != nullptr) add("connections", false, *access.connections, status);
  if (access.calls) add("calls", false, access.calls(), status);
  const QuotaBook& quotas = control.quotas();
  for (std::size_t i = 0; i < kQuotaKinds; ++i) {
    const auto kind = static_cast<QuotaKind>(i);
    add(std::string(name_of(kind)), is_in_bytes(kind), quotas.shares(kind), status);
  }
  for (const auto& [gpu, of_gpu] : control.gpu_shares().shares()) {
    for (std::size_t i = 0; i < kGpuResources; ++i) {
      const auto what = static_cast<GpuResource>(i);
      add(std::string(text_of(what)) + " of " + gpu, what == GpuResource::Bytes, of_gpu[i], status);
    }
  }
  const RememberedEpochs& remembered = control.rendezvous().remembered();
  v1::LimitStatus& ids = *status.add_limits();
  ids.set_name("remembered_ids");
  ids.set_used(remembered.size());
  ids.set_of_node(RememberedEpochs::kMost);
  ids.set_of_uid(RememberedEpochs::kMostOfUser);
  ids.set_users(remembered.users());
  for (const log::LineUse& lines : log::lines_used()) {
    v1::LimitStatus& limit = *status.add_limits();
    limit.set_name(std::string(lines.name));
    limit.set_used(lines.used);
    limit.set_of_node(lines.of_all);
    limit.set_of_uid(lines.of_uid);
    limit.set_users(lines.users);
    limit.set_most(lines.most);
    limit.set_most_uid(lines.most_uid);
  }
}

}  // namespace arcomm
