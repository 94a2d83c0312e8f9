#include "daemon/exec/worker/session_set.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

SessionSet::SessionSet() : cores_(usable_cores()) {}

Session* SessionSet::find(SessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Result<Session*> SessionSet::need(SessionId id) const {
  if (Session* session = find(id)) return session;
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "session ", id,
               " is unknown to this device or closed");
}

Status SessionSet::open(SessionSpec spec, bool draining, std::uint64_t now_ns) {
  if (find(spec.id) != nullptr) {
    return error(ErrorCode::AlreadyExists, Reason::Bug, "session ", spec.id, " is open already");
  }
  const std::uint32_t max_in_flight = std::min(spec.limits.max_in_flight, spec.segment.slots());
  auto session =
      std::make_unique<Session>(SessionOrigin{spec.id, spec.peer.pid, spec.peer.uid, spec.peer.gid,
                                              std::move(spec.process_name)},
                                std::move(spec.segment), std::move(spec.doorbell), max_in_flight,
                                tenant_of(spec.peer.uid), now_ns);
  if (draining) session->set_state(ring::SessionState::ShuttingDown, Reason::ShuttingDown);
  session->set_core_is_shared(core_is_shared_);
  polled_.push_back(session.get());
  sessions_.emplace(spec.id, std::move(session));
  update_oversubscription();
  return {};
}

std::unique_ptr<Session> SessionSet::remove(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  std::erase(polled_, session.get());
  return session;
}

// By uid, not by range: what a range has in flight is bounded by the rings of its sessions, of
// which it has no more than its share (quota.h). In one limit for all of a directory's users one of
// them could have the others' operations refused.
std::shared_ptr<Tenant> SessionSet::tenant_of(uid_t uid) {
  std::erase_if(tenants_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<Tenant>& known = tenants_[uid];
  std::shared_ptr<Tenant> tenant = known.lock();
  if (tenant == nullptr) known = tenant = std::make_shared<Tenant>();
  return tenant;
}

void SessionSet::update_oversubscription() {
  std::size_t seats = 0;
  for (const Session* session : polled_) seats += std::max<std::size_t>(1, session->members.size());
  oversubscribed_ = seats + 1 > cores_;
  for (Session* session : polled_) session->set_oversubscribed(oversubscribed_, seats > cores_);
}

void SessionSet::set_core_is_shared(bool shared) {
  if (core_is_shared_ == shared) return;
  core_is_shared_ = shared;
  for (Session* session : polled_) session->set_core_is_shared(shared);
}

}  // namespace arcomm
