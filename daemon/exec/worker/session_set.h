// The sessions of one worker: found by id, polled in turn, told when there are more spinners than
// cores. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/exec/specs.h"
#include "daemon/session/session.h"
#include "proto/status.h"

namespace arcomm {

class SessionSet {
 public:
  SessionSet();

  Status open(SessionSpec spec, bool draining, std::uint64_t now_ns);
  // No longer found or polled; null where there is no such session.
  std::unique_ptr<Session> remove(SessionId id);
  Session* find(SessionId id) const;  // null where there is none
  Result<Session*> need(SessionId id) const;
  // In the order of polling.
  std::span<Session* const> all() const { return polled_; }

  // Where ranks and worker outnumber the cores, all of them yield. To be called when sessions or
  // their members have come or gone.
  void update_oversubscription();
  bool oversubscribed() const { return oversubscribed_; }
  // Where other processes use the worker's core, all of them sleep.
  void set_core_is_shared(bool shared);
  bool core_is_shared() const { return core_is_shared_; }

 private:
  std::shared_ptr<Tenant> tenant_of(uid_t uid);

  std::unordered_map<SessionId, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uid_t, std::weak_ptr<Tenant>> tenants_;
  std::vector<Session*> polled_;
  unsigned cores_ = 1;  // that this process may use
  bool oversubscribed_ = false, core_is_shared_ = false;
};

}  // namespace arcomm
