// One client process attached to this worker: its two rings, its doorbells, and what it owns here.
// Thread: the worker's. Nothing in the segment is trusted: geometry and indices are the private
// copies in the rings' ends. The session's communicators and buffers go before it does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/plan/operation.h"
#include "daemon/telemetry/log/log_budget.h"
#include "proto/ring/consumer.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/producer.h"
#include "proto/ring/segment.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct SessionOrigin {
  SessionId id;
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string process_name;
};

// One user of this worker, whatever the number of the user's sessions, which share it: what quotas
// of operations are counted against.
struct Tenant {
  std::uint64_t in_flight = 0;  // operations admitted and not yet completed
};

class Session {
 public:
  Session(SessionOrigin origin, ring::Segment segment, UniqueFd doorbell,
          std::uint32_t max_in_flight, std::shared_ptr<Tenant> tenant, std::uint64_t now_ns);

  const SessionOrigin& origin() const { return origin_; }
  SessionId id() const { return origin_.id; }

  // ---- requests ----
  // May another request be read? Not while the completions of those in flight and those unread fill
  // their ring: a client that does not read holds up itself alone. Corrupt: the client broke the
  // completion ring.
  enum class Room : std::uint8_t { Yes, No, Corrupt };
  Room room();
  ring::Pop pop(ring::WorkRequest& slot) { return requests_.pop(slot); }
  ring::Pop peek() { return requests_.peek(); }
  void fetch_ahead() { requests_.fetch_ahead(); }

  // ---- completions ----
  // False when the client broke the ring. Never waits: room() kept a slot free. Afterwards the
  // client is to be woken, where it sleeps.
  bool complete(const ring::Completion& completion);
  void wake() { completions_bell_.ring(); }
  // Behind ring::order_published(), for many sessions at once.
  void wake_in_order() { completions_bell_.ring_in_order(); }
  bool to_be_woken = false;  // it is on the worker's list

  // ---- sleeping ----
  ring::EventDoorbell& requests_bell() { return requests_bell_; }
  int doorbell_fd() const { return doorbell_.get(); }

  // Tells the client, and wakes it.
  void set_state(ring::SessionState state, Reason reason);
  ring::SessionState state() const { return state_; }
  bool readable() const {
    return state_ == ring::SessionState::Open || state_ == ring::SessionState::ShuttingDown;
  }
  // With the worker among the spinners, and without it.
  void set_oversubscribed(bool oversubscribed, bool by_clients);
  void set_core_is_shared(bool shared);

  std::uint32_t max_in_flight() const { return max_in_flight_; }
  // Operations admitted and not yet completed, of this session and of its user.
  std::uint32_t in_flight() const { return in_flight_; }
  std::uint64_t user_in_flight() const { return tenant_->in_flight; }
  void charge() { ++in_flight_, ++tenant_->in_flight; }
  void discharge() { --in_flight_, --tenant_->in_flight; }
  std::uint64_t submitted = 0, completed = 0, failed = 0, rejected = 0;
  LogBudget failure_lines;  // a client whose operations all fail must not fill the log
  bool low_backlog = true;  // its last turn took few requests and left none
  std::uint64_t registered_bytes = 0;
  std::vector<MemberId> members;
  std::vector<BufferId> buffers;
  std::vector<PlanId> plans;
  // What control has charged for: so many plans there may be. More are only made with a charge.
  std::uint64_t paid_plans = 0;
  const std::uint64_t opened_ns;

 private:
  SessionOrigin origin_;
  ring::Segment segment_;  // the rings' ends point into it
  UniqueFd doorbell_;
  std::uint32_t max_in_flight_;
  std::uint32_t in_flight_ = 0;
  std::shared_ptr<Tenant> tenant_;
  ring::SessionState state_ = ring::SessionState::Open;
  bool oversubscribed_ = false, oversubscribed_by_clients_ = false;
  ring::Consumer<ring::WorkRequest> requests_;
  ring::Producer<ring::Completion> completions_;
  ring::EventDoorbell requests_bell_;
  ring::FutexDoorbell completions_bell_;
};

}  // namespace arcomm
