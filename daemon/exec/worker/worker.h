// What a device worker knows and does, as the verbs of its loop and the answers to control's
// messages. The thread, its sleep and its mailbox are in device_worker.cc. Thread: one, the owner
// of everything here. A GPU worker has a GpuPlane and a GpuExecutor in place of the Executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/gpu/gpu_executor.h"
#include "daemon/exec/gpu/gpu_plane.h"
#include "daemon/exec/host/executor.h"
#include "daemon/exec/tune/gpu_bench.h"
#include "daemon/exec/worker/completion.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/memory/pool.h"
#include "daemon/session/admission.h"
#include "daemon/session/persistent_plan.h"
#include "daemon/session/session.h"

namespace arcomm {

class Worker {
 public:
  template <typename T>
  using Done = DeviceWorker::Done<T>;

  static Result<std::unique_ptr<Worker>> create(DeviceWorker::Parts parts);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // ---- the loop's verbs; each says whether it found work ----
  bool poll_sessions();  // at most kMostAtOnce of each session, in turn
  bool settle();         // answers what has ended
  bool execute();        // starts what may run, and one tile of each large operation
  bool reap();           // what the device has finished; sessions that can go
  void sweep_deadlines(std::uint64_t now_ns);

  // ---- sleeping ----
  enum class Rest : std::uint8_t {
    Awake,  // there is work after all
    Sleep,  // every session will ring
    Nap,    // a session has requests but no room for completions: nobody will ring, look again soon
  };
  Rest arm();  // afterwards disarm(), whatever it said
  void disarm();
  std::uint64_t next_deadline_ns() const;
  bool computing() const { return gpus_ ? !gpu_executor_->idle() : !executor_->idle(); }
  // How long a sleep may last at most: no GPU can ring. 0: stay awake.
  std::uint64_t rest_ns(std::uint64_t now_ns) const {
    return gpus_ ? gpus_->rest_ns(now_ns) : ~std::uint64_t{0};
  }
  bool lost() const;  // its device: only a new process can use it again
  bool oversubscribed() const { return oversubscribed_; }  // more spinners than cores
  bool flooded() const { return flooded_; }  // this turn left somebody's requests for the next

  // ---- control's messages ----
  Status open_session(SessionSpec seed, std::uint64_t now_ns);
  void close_session(SessionId session, Reason reason, const std::string& why, Done<void> done);
  Result<BufferId> add_buffer(SessionId session, BufferSpec seed);
  Result<AllocatedBuffer> allocate_buffer(SessionId session, const std::string& device,
                                          std::uint64_t bytes);
  Status remove_buffer(SessionId session, BufferId buffer);
  Result<PlanId> add_plan(SessionId session, const PlanSpec& seed);
  Status remove_plan(SessionId session, PlanId plan);
  Result<std::vector<MemberId>> form_communicator(const CommunicatorSpec& seed);
  // Both answer once every operation of the member has ended, those too that were still to run:
  // from then on the caller's memory is his alone. Asked again meanwhile, they answer at that time
  // too.
  void abort_communicator(SessionId session, MemberId member, const std::string& why,
                          Done<void> done);
  void leave_communicator(SessionId session, MemberId member, Done<void> done);
  Result<CommunicatorSnapshot> describe(SessionId session, MemberId member) const;
  Result<MailboxDescriptors> export_mailbox(SessionId session, MemberId member) const;
  bool on_gpus() const { return gpus_ != nullptr; }
  Result<std::uint64_t> begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes);
  Result<double> measure(GpuMeasurement what);
  void end_measuring() { bench_.reset(); }
  WorkerSnapshot inspect() const;
  void use_settings(std::shared_ptr<const Settings> settings);
  void use_tuning(std::shared_ptr<const TuningTable> tuning) {
    executor_ ? executor_->use_tuning(std::move(tuning))
              : gpu_executor_->use_tuning(std::move(tuning));
  }
  void drain(std::uint64_t deadline_ns, Done<void> done);
  // Fails what is open, waits until nothing runs and lets all sessions go.
  void shut_down();

  int doorbell_of(SessionId session) const;  // -1 where there is no such session
  std::uint64_t pending() const { return operations_.taken(); }
  void set_busy(double fraction) { busy_fraction_ = fraction; }

 private:
  static constexpr int kMostAtOnce = 32;  // requests of one session, and starts, in one turn
  static constexpr int kFew = 2;          // of them

  struct Leaving {
    std::unique_ptr<Session> session;
    Done<void> done;
  };
  struct Parting {
    SessionId session;
    MemberId member;
    std::optional<CommunicatorTable::Committed> waits_for;
    Done<void> done;
  };
  struct Draining {
    std::uint64_t deadline_ns = 0;
    Done<void> done;
  };

  explicit Worker(DeviceWorker::Parts parts);

  std::shared_ptr<Tenant> tenant_of(uid_t uid);
  Session* find(SessionId id) const;
  Result<Session*> need(SessionId id) const;
  Result<Member*> need_member(SessionId session, MemberId member) const;
  bool poll(Session& session);
  // May the turn go on after so many? Not once somebody calls whom it would keep waiting.
  bool goes_on(int done);
  bool somebody_calls() const;
  void wake_clients();
  void admit(Session& session, const ring::WorkRequest& slot, std::uint64_t now_ns);
  void accept(Session& session, Operation& operation);
  // The other ranks hear why this one's request was refused.
  void tell_refused(const Admitted& refused, std::uint64_t now_ns);
  void lose(Session& session, const char* why);  // marks it; quarantined at the end of the verb
  void quarantine_lost();
  // The session's ranks go; their peers hear `reason`.
  void drop_members(Session& session, Reason reason, const std::string& why);
  void answer_when_ended(Parting parting);
  // Is that member on its way out? Then `done` hears of it.
  bool join_parting(SessionId session, MemberId member, const Done<void>& done);
  void release(Session& session);  // plans and buffers; nothing of it is in flight
  void let_go(RemovedBuffer removed);

  // ---- GPU workers, worker_gpus.cc ----
  bool poll_doorbells();
  void catch_up();  // with doorbells, before a message that ends something
  void take_doorbell(GpuGroup& group, GpuMember& member, Doorbell doorbell, std::uint64_t now_ns);
  void tend_gpus(std::uint64_t now_ns);
  // An operation through a doorbell failed: whoever waits in the communicator's mailboxes hears of
  // it.
  void end_by_doorbell(MemberId member, const Failure& failure);
  Result<BufferId> add_gpu_buffer(Session& session, const BufferSpec& seed);
  void leave_gpu(Communicator& communicator, Rank rank);
  void retire_from_gpu(Communicator& communicator, Rank rank);
  Status check_gpu_plan(const PersistentPlan& plan, const CheckedRange& send,
                        const CheckedRange& recv) const;
  Status bind_to_gpu(PlanId id, PersistentPlan& plan);
  Status unbind_from_gpu(PlanId id, const PersistentPlan& plan);
  Status may_measure();
  void add_gpu_view(const Communicator& communicator, CommunicatorSnapshot& shot) const;

  void on_revoked(Communicator& communicator);
  void update_oversubscription();
  CommunicatorSnapshot snapshot(const Communicator& communicator, std::uint64_t now_ns) const;

  DeviceWorker::Parts parts_;
  std::unique_ptr<GpuPlane> gpus_;   // null: a host worker. Before what it lets go
  std::unique_ptr<GpuBench> bench_;  // while somebody measures
  BufferRegistry buffers_;
  Pool<Operation> operations_{512};
  PlanTable plans_;
  CommunicatorTable communicators_;
  Admission admission_;
  CompletionSink completions_;
  std::unordered_map<SessionId, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uid_t, std::weak_ptr<Tenant>> tenants_;
  std::vector<Session*> polled_;  // the same, in the order of polling
  std::size_t first_polled_ = 0;
  std::vector<std::pair<Session*, const char*>> lost_;
  std::vector<Session*> to_wake_;  // those that settle() has told something
  std::vector<Leaving> leaving_;
  std::vector<Parting> parting_;
  std::vector<Draining> draining_;
  int look_every_ = kFew;                       // requests or starts, for who else calls
  bool yield_early_ = false, flooded_ = false;  // in this turn
  bool oversubscribed_ = false;
  unsigned cores_ = 1;
  double busy_fraction_ = 0;
  std::unique_ptr<GpuExecutor> gpu_executor_;
  std::unique_ptr<Executor> executor_;  // last: its streams end before the memory goes
};

}  // namespace arcomm
