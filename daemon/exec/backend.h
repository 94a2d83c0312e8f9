// How a worker's matched operations run: on this machine's cores (exec/host) or between GPUs
// (exec/gpu). The worker keeps sessions, rings, admission, boards and completions; a backend keeps
// the device. Thread: the worker's.
//
// Nothing here calls back into the worker. What ended, failed or was called past the rings is
// handed over in values, and the worker acts on it when the call has returned. Nothing here blocks
// for longer than its comment says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/settings.h"
#include "daemon/comm/communicator.h"
#include "daemon/exec/snapshots.h"
#include "daemon/exec/specs.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/plan/failure.h"
#include "daemon/session/admission.h"
#include "daemon/session/persistent_plan.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/status.h"

namespace arcomm {

class Links;
class NetworkExecutor;
class OfferedData;
struct TuningTable;

// What became of a communicator's running operation.
struct Outcome {
  Communicator* communicator = nullptr;
  Failure failure;  // ok(): the result is there
  // False: it has failed on some rank and still runs on others. The communicator is to be revoked.
  bool ended = true;
};

// A plan's start that came past the rings, through the member's doorbell.
struct DoorbellCall {
  SessionId session;
  MemberId member;
  Doorbell doorbell;
  bool in_order =
      true;  // false: its number is not the next one, and the session broke the protocol
};

// An operation that this worker neither started nor matched has failed: the resident grid or a
// client's own kernel says so.
struct PathFailure {
  Communicator* communicator = nullptr;
  Communicator* crossed = nullptr;  // both waited for each other
  Failure failure;
  Rank rank = kNoRank;         // that says so
  std::uint32_t number = 0;    // of its operation, on that path
  std::uint8_t algorithm = 0;  // as the flight recorder numbers it
};

class Backend {
 public:
  enum class Started : std::uint8_t {
    Ended,   // `failure` says how
    Running  // collect() will say; with a failure set: to be revoked now
  };

  virtual ~Backend() = default;

  // ---- what it is ----
  virtual bool on_gpus() const { return false; }
  // Operations run on this machine's cores, so that a worker that waits leaves them its own.
  virtual bool takes_cores() const { return true; }
  // Memory, plans and communicators come and go only while the device is quiesced: in turns.
  virtual bool is_quiesced_for_changes() const { return false; }
  // At the end: nothing but this process holds what operations use that do not end. Cores always
  // come to their end.
  virtual bool may_be_left_running() const { return false; }

  // ---- the loop's verbs ----
  // A turn of the loop begins: what its calls wait for GPUs, all in all, is bounded by it.
  virtual void begin_turn() {}
  // Starts that have come past the rings since the last call; empty on the host.
  virtual std::span<const DoorbellCall> poll() { return {}; }
  // How many turns it takes at most until what was called before now has been seen.
  virtual int turns_behind() const { return 0; }
  // Begins the communicator's oldest operation, which has been matched and is in time. Its
  // flight records get what ran it.
  virtual Started start(Communicator& communicator, std::uint64_t now_ns, Failure& failure) = 0;
  // Some of the work on this thread, where there is any: about a tile. Returns whether there was.
  virtual bool work() { return false; }
  // What has ended or failed since the last call. Returns whether there was any.
  virtual bool collect(std::vector<Outcome>& outcomes) = 0;
  // The communicator was revoked: its running operation ends as soon as nobody can touch its
  // memory any more, and collect() reports it; whoever waits in a stream is told why. Again: no
  // effect.
  virtual void stop(Communicator& communicator) = 0;
  // Leases, health, what others ran. Failures are valid until the next call.
  virtual std::span<const PathFailure> tend(std::uint64_t) { return {}; }
  virtual bool idle() const = 0;
  // How long the worker may sleep, where the device cannot ring it. 0: stay awake.
  virtual std::uint64_t rest_ns(std::uint64_t) const { return ~std::uint64_t{0}; }
  virtual bool lost() const { return false; }  // only a new process can use the device again

  // ---- settings ----
  virtual void use_settings(const Settings&) {}
  virtual void use_tuning(
      std::shared_ptr<const TuningTable> tuning) = 0;  // for communicators to come
  virtual void begin_drain() {}  // clients will call little more: nothing is begun for them ahead

  // Whatever `act` does that quiesces the device shares one quiescing.
  virtual void in_one_quiescing(const std::function<void()>& act) { act(); }

  // ---- memory ----
  // Unavailable (here and below): the device is held up, nothing was done, and the same call may be
  // made again. Otherwise what the spec owns may have been taken from it.
  virtual Result<BufferId> add_buffer(SessionId session, BufferSpec& spec) = 0;
  virtual Result<AllocatedBuffer> allocate_buffer(SessionId session, const AllocationSpec& spec);
  // It goes when the device can do without it.
  virtual void release(RemovedBuffer) {}
  // Whether some of that has not gone yet, and would if the device were quiesced, or not in this
  // moment: look again in another turn. FailedPrecondition: it would not, as somebody is in its
  // way. Unavailable: what is left is still being cleared, or may be wanted by who asked for it.
  enum class Released : std::uint8_t { None, WouldGo, NotYet };
  virtual Result<Released> keeps_released() { return Released::None; }
  // It goes now, or FailedPrecondition. False: there is more of it than a turn has time for, and
  // the same call goes on in another one.
  virtual Result<bool> let_go_of_released() { return true; }

  // ---- plans ----
  // The plan that gets `id` next: what the device needs for it, or why it cannot be. Fills what is
  // the backend's in it.
  virtual Status bind(PlanId id, PersistentPlan& plan, const CheckedRange& send,
                      const CheckedRange& recv);
  // FailedPrecondition while an operation of it is open.
  virtual Status unbind(PlanId, const PersistentPlan&) { return {}; }
  // Those of a session that has gone, and whose operations have ended.
  virtual void unbind_all(std::span<const PlanId>) {}

  // ---- communicators ----
  // What the device keeps with a communicator: `made`, null where that is nothing. False: a part of
  // it is there, and the next call with it goes on, in another turn.
  virtual Result<bool> form(const CommunicatorSpec&, std::unique_ptr<CommunicatorExtension>& made);
  // The communicator exists now, with form()'s extension and its members' ids.
  virtual void adopt(Communicator&) {}
  // The rank goes. In good order: what all ranks have called may still run, and the others hear of
  // it then. From its return on nothing that it alone had called touches its memory.
  virtual void leave(Communicator&, Rank) {}
  virtual void abort(Communicator&, Rank) {}
  virtual Result<MailboxDescriptors> export_mailbox(const Communicator&, Rank) const;
  virtual void describe(const Communicator&, CommunicatorSnapshot&) const {}

  // ---- what passes the worker by ----
  virtual bool starts_by_doorbell() const { return false; }  // and nothing starts in the rings
  virtual std::uint64_t operations_elsewhere() const { return 0; }  // of all ranks, ever

  // ---- other nodes ----
  // What runs communicators that span nodes, made with these, which outlive the backend: start(),
  // work(), collect(), stop() and idle() drive it for them. Asked for once, before any call of
  // start(). Null: this device cannot.
  virtual NetworkExecutor* span_nodes(Links&, const OfferedData&) { return nullptr; }
  // Something runs, and all that runs waits for what other nodes send: the worker may sleep until a
  // stream has moved something.
  virtual bool awaits_nodes() const { return false; }

  // ---- tuning: see DeviceWorker::begin_measuring ----
  virtual Status begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes);
  // The bytes there is room for. None: call again, in another turn; so, too, after Unavailable.
  virtual Result<std::optional<std::uint64_t>> prepare_measuring();
  virtual Status measure(GpuMeasurement what);
  // Microseconds; none: call again, in another turn.
  virtual Result<std::optional<double>> measured();
  virtual void end_measuring() {}
  // See DeviceWorker::measure_flag.
  virtual Status begin_flag_echo(std::uint32_t gpu);
  // None: call again, in another turn.
  virtual Result<std::optional<FlagEcho>> flag_echo();

  // The end: no communicator is left. False: not all has been let go of; call again in another
  // turn, for some time.
  virtual bool shut_down() { return true; }
};

}  // namespace arcomm
