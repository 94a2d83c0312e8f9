// The thread that owns one device: its sessions' rings, its communicators, its backend. Everything
// that touches an operation happens on it; other threads talk to it by message and hear back
// through `done`.
//
// Thread: run() is the worker's own; every other public function may be called from any thread,
// posts a message and returns at once. `done` is called exactly once, on the worker thread (or on
// the caller's, with Unavailable, when the worker has stopped); it must not block and must not call
// back into the worker synchronously.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/exec/open_backend.h"
#include "daemon/exec/snapshots.h"
#include "daemon/exec/specs.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

class FlightRecorder;
class Metrics;
struct TuningTable;

// What the worker tells the control plane, on the worker thread.
struct WorkerEvents {
  // The session broke the ring protocol or its process died; control forgets it and gives its quota
  // back.
  std::function<void(SessionId, Reason, std::string why)> session_lost;
  // A communicator left the ready state; a rebuild under the same unique id may start. why: for
  // people, with the node where it happened if that is another one.
  std::function<void(const UniqueIdBytes&, std::uint64_t epoch, Reason, const std::string& why)>
      communicator_revoked;
  // A link has failed, by itself or as the peer said goodbye: the worker has let go of it and
  // revoked what ran over it. Not told of one that close_link() ended.
  std::function<void(PeerId, Error why)> link_lost = {};
};

class DeviceWorker {
 public:
  template <typename T>
  using Done = std::function<void(Result<T>)>;

  struct Parts {
    std::string device;  // what it serves, for people
    OpenBackend open_backend;
    FlightRecorder& recorder;
    Metrics& metrics;
    std::shared_ptr<const Settings> settings;
    std::shared_ptr<const TuningTable> tuning;
    WorkerEvents events;
  };

  static Result<std::unique_ptr<DeviceWorker>> create(Parts parts);
  virtual ~DeviceWorker() = default;

  virtual void run() = 0;   // until stop(); called once, on the thread that becomes the owner
  virtual void stop() = 0;  // fails what is open and makes run() return

  virtual void open_session(SessionSpec spec, Done<void> done) = 0;
  // Revokes the session's communicators (its peers hear `reason` and its rank), unmaps its memory,
  // closes its rings. done: everything is released.
  virtual void close_session(SessionId session, Reason reason, std::string why,
                             Done<void> done) = 0;

  // What quiesces GPUs (these two, forming, plans that go) waits where they are held up, and
  // is Unavailable at its deadline, with the words for what held it up.
  virtual void add_buffer(SessionId session, BufferSpec spec, Done<BufferId> done) = 0;
  // GPU workers; Unimplemented on others.
  virtual void allocate_buffer(SessionId session, AllocationSpec spec,
                               Done<AllocatedBuffer> done) = 0;
  // Refused with FailedPrecondition while an operation in flight uses it.
  virtual void remove_buffer(SessionId session, BufferId buffer, Done<void> done) = 0;
  // GPU workers, which let go of memory some time after it was released; at the expense of a uid.
  // done: all of it has gone, whoever's it was; FailedPrecondition: what is in its way;
  // Unavailable: the GPUs could not be quiesced for it until the deadline.
  virtual void let_go_of_released(uid_t asking, std::uint64_t deadline_ns, Done<void> done) = 0;
  // Of a plan that its caller has charged for, and that takes its charge along. pay_plans: charged
  // for likewise, for as many plans that the session itself makes in its ring.
  virtual void add_plan(SessionId session, PlanSpec spec, Done<PlanId> done) = 0;
  virtual void pay_plans(SessionId session, std::uint64_t more) = 0;
  virtual void remove_plan(SessionId session, PlanId plan, Done<void> done) = 0;

  // done: one MemberId per rank, in rank order.
  virtual void form_communicator(CommunicatorSpec spec, Done<std::vector<MemberId>> done) = 0;
  // Both: done once no operation of the member can touch memory any more, so that the caller may
  // use its own again. A rank that leaves ends what others have not called yet; what all had called
  // runs first.
  virtual void abort_communicator(SessionId session, MemberId member, std::string why,
                                  Done<void> done) = 0;
  virtual void leave_communicator(SessionId session, MemberId member, Done<void> done) = 0;
  virtual void describe(SessionId session, MemberId member, Done<CommunicatorSnapshot> done) = 0;

  // To another daemon. AlreadyExists where there is one to this peer. Closing it, as when the peer
  // is found dead, revokes the communicators that span it, whose ranks hear `why`.
  virtual void open_link(LinkSpec link, Done<void> done) = 0;
  virtual void close_link(PeerId peer, Error why, Done<void> done) = 0;
  // GPU workers; Unimplemented on others.
  virtual void export_mailbox(SessionId session, MemberId member,
                              Done<MailboxDescriptors> done) = 0;
  virtual bool on_gpus() const = 0;

  // GPU workers; Unimplemented on others. Measures kernels between the worker's first `ranks` GPUs,
  // on memory of its own, which it keeps until end_measuring(). All of them are refused with
  // FailedPrecondition while a communicator exists, and the memory goes then: clients come first,
  // but for the one measurement that runs when they come. done of begin: the largest operation that
  // there is memory for, at most room_bytes; of measure: microseconds. After any other error of
  // measure() than OutOfRange it takes another begin.
  virtual void begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes,
                               Done<std::uint64_t> done) = 0;
  virtual void measure(GpuMeasurement what, Done<double> done) = 0;
  virtual void end_measuring(Done<void> done) = 0;
  // GPU workers; Unimplemented on others. What a flag takes from a kernel on that one of its GPUs
  // to the CPU and back; nothing else is done by this worker for some milliseconds. Refused with
  // FailedPrecondition while a communicator exists. Unavailable: not now; it may be asked again.
  virtual void measure_flag(std::uint32_t gpu, Done<FlagEcho> done) = 0;

  virtual void inspect(Done<WorkerSnapshot> done) = 0;
  virtual void use_settings(std::shared_ptr<const Settings> settings) = 0;
  virtual void use_tuning(std::shared_ptr<const TuningTable> tuning) = 0;
  // No new operations from now on (they are refused with ShuttingDown); done when none is in flight
  // or at the deadline, after which what is left has been failed.
  virtual void drain(std::chrono::nanoseconds deadline, Done<void> done) = 0;
  // Grows with every turn of run(); a watchdog that sees it stand still while work is pending stops
  // the pings.
  virtual std::uint64_t progress() const = 0;
};

}  // namespace arcomm
