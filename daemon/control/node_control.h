// What clients may ask for: sessions, communicators, buffers, plans. Owns the state that these
// share and the classes that serve them, and hands each call, event and connection on to its class:
// SessionCalls, CommunicatorCalls, BufferCalls, PlanCalls. They check who asks and what it may
// take, then post to the worker that owns the device and answer when that one has answered.
//
// Thread: the control loop. Every call is answered exactly once and in bounded time: one that the
// worker leaves unanswered ends with DeadlineExceeded.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/calls/buffers/buffer_calls.h"
#include "daemon/control/calls/communicators/communicator_calls.h"
#include "daemon/control/calls/communicators/communicator_joins.h"
#include "daemon/control/calls/numbered_answers.h"
#include "daemon/control/calls/plan_calls.h"
#include "daemon/control/calls/session_calls.h"
#include "daemon/control/calls/session_groups.h"
#include "daemon/control/control_state.h"
#include "daemon/control/descriptors/fair_prefault.h"
#include "daemon/control/peers/meetings/meetings.h"

namespace arcomm {

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

  // From now on communicators may span nodes. Before the loop runs; both are there until
  // leave_peers(), on the loop.
  void use_peers(PeerMessenger& peers, LinkMaker& links);
  void leave_peers();
  // Of communicators that meet here from now on.
  void use_network_tuning(std::shared_ptr<const NetworkTuning> tuning);
  void use_tuning(std::shared_ptr<const TuningTable> tuning);

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
  void take_back(const Caller& caller, const v1::TakeBackRequest& request,
                 const Answer<v1::Empty>& answer);
  void describe(const Caller& caller, const v1::DescribeRequest& request,
                Answer<v1::DescribeReply> answer);
  void detach(const Caller& caller, const v1::DetachRequest& request, Answer<v1::Empty> answer);
  // An answer did not reach its caller, who can neither use nor release what it gave.
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::BufferReply& unheard);
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::CreatePlanReply& unheard);
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::CreateCommunicatorReply& unheard);

  // From the sockets.
  void connection_hung_up(ConnectionNumber connection);
  FdChannel& descriptors() { return sessions_.descriptors(); }
  void on_descriptor_release(std::function<void(uid_t)> released);

  // From the workers' events (posted to the loop by whoever wires them).
  void session_lost(SessionId session, Reason reason, const std::string& why);
  void communicator_revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch,
                            const std::string& why);

  void use_settings(std::shared_ptr<const Settings> settings);
  // From now on everything but Detach and releases is refused with ShuttingDown; pending
  // communicators fail.
  void begin_shutdown();

  SessionLedger& ledger() { return state_.ledger; }
  const QuotaBook& quotas() const { return state_.quotas; }
  const InCallExchanges& in_call() const { return state_.in_call; }
  const GpuShares& gpu_shares() const { return state_.gpu_shares; }
  const Rendezvous& rendezvous() const { return joins_.rendezvous(); }
  const std::vector<WorkerRef>& workers() const { return state_.devices.workers(); }
  bool stopping() const { return state_.stopping; }

 private:
  ControlState state_;
  FairPrefault fair_prefault_;
  SessionGroups groups_;
  CommunicatorJoins joins_;
  std::optional<Meetings> meetings_;  // where there are peers
  CommunicatorCalls communicators_;
  BufferCalls buffers_;
  PlanCalls plans_;
  NumberedAnswers answers_;
  SessionCalls sessions_;  // tells joins_ and buffers_ who has gone
};

}  // namespace arcomm
