// What clients may ask for: sessions, communicators, buffers, plans. Checks who asks and what it
// may take, then posts to the worker that owns the device and answers when that one has answered.
//
// Thread: the control loop. Every call is answered exactly once and in bounded time: one that the
// worker leaves unanswered ends with DeadlineExceeded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/control/descriptors/fair_prefault.h"
#include "daemon/control/descriptors/fd_channel.h"
#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/quota.h"
#include "daemon/control/rendezvous.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/control/rpc/task_thread.h"
#include "daemon/control/session_ledger.h"
#include "daemon/control/worker_replies.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/session/kept_rings.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

class Metrics;
namespace v1 = arcommd::v1;

// The answer of a call that returns nothing.
inline Result<v1::Empty> empty_or(const Status& status) {
  if (!status) return status.error();
  return v1::Empty{};
}

struct WorkerRef {
  std::string device;              // "host:0"
  DeviceWorker* worker = nullptr;  // outlives the control plane
  FlightRecorder* recorder = nullptr;
  std::vector<std::string> gpus = {};  // "GPU-<uuid>", the default first; empty: a host worker
  std::optional<uid_t> only_uid = {};  // whom its MPS server serves; none: everybody
};

class NodeControl {
 public:
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    TaskThread& memory_thread;
    std::shared_ptr<const Settings> settings;
    KeptRings& kept_rings;
    std::vector<WorkerRef> workers;
  };
  explicit NodeControl(Parts parts);

  void attach(const Caller& caller, const v1::AttachRequest& request,
              Answer<v1::AttachReply> answer);
  void create_communicator(const Caller& caller, const v1::CreateCommunicatorRequest& request,
                           Answer<v1::CreateCommunicatorReply> answer);
  // The caller of that create_communicator (Caller::call) no longer listens.
  void cancel_communicator(std::uint64_t call);
  void destroy_communicator(const Caller& caller, const v1::DestroyCommunicatorRequest& request,
                            Answer<v1::Empty> answer);
  void abort_communicator(const Caller& caller, const v1::AbortCommunicatorRequest& request,
                          Answer<v1::Empty> answer);
  void allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  // The caller of that allocate_buffer no longer listens.
  void cancel_allocation(std::uint64_t call);
  void register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  void release_buffer(const Caller& caller, const v1::ReleaseBufferRequest& request,
                      Answer<v1::Empty> answer);
  void create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                   Answer<v1::CreatePlanReply> answer);
  void destroy_plan(const Caller& caller, const v1::DestroyPlanRequest& request,
                    Answer<v1::Empty> answer);
  void describe(const Caller& caller, const v1::DescribeRequest& request,
                Answer<v1::DescribeReply> answer);
  void detach(const Caller& caller, const v1::DetachRequest& request, Answer<v1::Empty> answer);
  // An answer did not reach its caller, who can neither use nor release what it gave.
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::BufferReply& unheard);
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::CreatePlanReply& unheard);

  // From the sockets.
  void connection_hung_up(ConnectionNumber connection);
  void client_gone(SessionId session, const std::string& why);
  FdChannel& descriptors() { return descriptors_; }
  void on_descriptor_release(std::function<void(uid_t)> released) {
    released_ = std::move(released);
  }

  // From the workers' events (posted to the loop by whoever wires them).
  void session_lost(SessionId session, Reason reason, const std::string& why);
  void communicator_revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch);

  void use_settings(std::shared_ptr<const Settings> settings);
  // From now on everything but Detach and releases is refused with ShuttingDown; pending
  // communicators fail.
  void begin_shutdown();

  SessionLedger& ledger() { return ledger_; }
  const QuotaBook& quotas() const { return quotas_; }
  const Rendezvous& rendezvous() const { return rendezvous_; }
  const std::vector<WorkerRef>& workers() const { return parts_.workers; }
  const Settings& settings() const { return *parts_.settings; }
  bool stopping() const { return stopping_; }

 private:
  Result<SessionEntry*> authorize(const Caller& caller, const v1::SessionRef& session);
  struct Place {
    std::size_t worker = 0;
    std::string gpu;  // when one was named
  };
  Result<Place> find_device(const std::string& device) const;
  // The GPU that a call means: `named`, or the session's. "" on a host worker.
  Result<std::string> gpu_of(const SessionEntry& session, const std::string& named) const;
  Status promise_ticket(SessionEntry& session);  // a call under way will store one
  DeviceWorker& worker_of(const SessionEntry& session) const {
    return *parts_.workers[session.worker].worker;
  }
  Status refuse_when_stopping() const;

  void count_communicators();
  void join(Rendezvous::Call call);
  void arm_sweep();
  void leave(std::size_t worker, SessionId session, MemberId member);
  Rendezvous::Answer joined(SessionId id, const UniqueIdBytes& unique_id, Rank rank,
                            ChargePtr charge, Answer<v1::CreateCommunicatorReply> answer);
  // GPU workers: the reply with a ticket for the rank's mailbox.
  void hand_over_mailbox(SessionId id, MemberId member, v1::CreateCommunicatorReply reply,
                         const Answer<v1::CreateCommunicatorReply>& answer);
  struct NewBuffer;
  Status charge(NewBuffer& buffer, uid_t uid, std::uint64_t length_bytes);
  void allocate_on_gpu(SessionEntry& session, const v1::AllocateBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  void register_on_gpu(SessionEntry& session, const v1::RegisterBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  void add_buffer(const std::shared_ptr<NewBuffer>& buffer,
                  const std::shared_ptr<UniqueFd>& memory);
  void forget_buffer(SessionId id, BufferId buffer);
  void close_session(SessionId id, Reason reason, const std::string& why, Answer<v1::Empty> answer);

  Parts parts_;
  WorkerReplies replies_;
  QuotaBook quotas_;
  SessionLedger ledger_;  // after quotas_: entries hold charges
  Rendezvous rendezvous_;
  std::optional<EventLoop::TimerKey> sweep_;   // at the earliest deadline, when armed
  std::unordered_set<std::uint64_t> looking_;  // calls that wait for the worker before they join
  FdChannel descriptors_;
  FdCloser memory_closer_;  // its last reference may be ours
  FairPrefault fair_prefault_;
  std::function<void(uid_t)> released_;
  bool stopping_ = false;
};

}  // namespace arcomm
