// The worker's thread: its mailbox, and the turns of its loop.
#include "daemon/exec/worker/device_worker.h"

#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <type_traits>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/failpoint.h"
#include "daemon/exec/worker/control_requests.h"
#include "daemon/exec/worker/mailbox.h"
#include "daemon/exec/worker/quiesce/quiesce_turns.h"
#include "daemon/exec/worker/turns/doze.h"
#include "daemon/exec/worker/turns/turn_times.h"
#include "daemon/exec/worker/turns/turn_waits.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

// After so long further messages wait for the next turn.
constexpr std::uint64_t kMessagesNs = 200'000;

Error stopped() {
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the device worker has stopped");
}

class ThreadedWorker final : public DeviceWorker {
 public:
  ThreadedWorker(std::unique_ptr<Worker> worker, const Settings& settings, Metrics& metrics,
                 Doze doze, UniqueFd event)
      : worker_(std::move(worker)),
        requests_(*worker_),
        quiesce_turns_(worker_->state()),
        times_(metrics),
        doze_(std::move(doze)),
        mailbox_(std::move(event)),
        waits_({.worker = *worker_,
                .mailbox = mailbox_,
                .quiesce_turns = quiesce_turns_,
                .metrics = metrics,
                .times = times_,
                .doze = doze_},
               settings) {
    worker_->state().nodes.ring_with([this] { mailbox_.bell().ring(); });
  }

  Status watch_mailbox() { return doze_.watch(mailbox_.event_fd()); }

  void run() override;
  void stop() override {
    stop_.store(true, std::memory_order_release);
    mailbox_.post({[] {}, [] {}});
  }

  void open_session(SessionSpec spec, Done<void> done) override {
    ask(std::move(done), [this, spec = share(std::move(spec))]() -> Status {
      const int doorbell = spec->doorbell.get();
      const SessionId id = spec->id;
      ARC_RETURN_IF_ERROR(doze_.watch(doorbell));
      Status opened = requests_.open_session(std::move(*spec), now_ns());
      if (opened) log::debug("session {} opened", fmt::streamed(id));
      return opened;
    });
  }
  void close_session(SessionId session, Reason reason, std::string why, Done<void> done) override {
    post(done, [this, session, reason, why = std::move(why), done] {
      doze_.unwatch(requests_.doorbell_of(session));
      requests_.close_session(session, reason, why, done);
    });
  }
  void add_buffer(SessionId session, BufferSpec spec, Done<BufferId> done) override {
    const QuiesceTurns::Claim claim{.who = {session}, .deadline_ns = spec.deadline_ns};
    const auto held = share(std::move(spec));
    // What comes of it not at all is a last reference, perhaps: closed elsewhere. At the end there
    // is nobody whom that would hold up.
    Done<BufferId> end = [this, held, done = std::move(done)](Result<BufferId> added) {
      if (!added && added.error().reason != Reason::ShuttingDown) requests_.let_go(*held);
      done(std::move(added));
    };
    ask_quiesced(std::move(end), claim,
                 [this, session, held] { return requests_.add_buffer(session, *held); });
  }
  void allocate_buffer(SessionId session, AllocationSpec spec,
                       Done<AllocatedBuffer> done) override {
    const QuiesceTurns::Claim claim{.who = {session}, .deadline_ns = spec.deadline_ns};
    const auto held = share(std::move(spec));
    Done<AllocatedBuffer> end = [held, done = std::move(done)](Result<AllocatedBuffer> made) {
      held->token.reset();
      done(std::move(made));
    };
    ask_quiesced(std::move(end), claim,
                 [this, session, held] { return requests_.allocate_buffer(session, *held); });
  }
  void remove_buffer(SessionId session, BufferId buffer, Done<void> done) override {
    ask(std::move(done),
        [this, session, buffer] { return requests_.remove_buffer(session, buffer); });
  }
  void let_go_of_released(uid_t asking, std::uint64_t deadline_ns, Done<void> done) override {
    post(done, [this, asking, deadline_ns, done] {
      Backend& backend = *worker_->state().backend;
      // Nobody's turn is taken, nor a GPU stopped, for what would not go.
      const Result<Backend::Released> keeps = backend.keeps_released();
      if (!keeps || *keeps == Backend::Released::None)
        return done(keeps ? Status() : Status(keeps.error()));
      // The backend says so for milliseconds, and then that it would not.
      if (*keeps == Backend::Released::NotYet) return let_go_of_released(asking, deadline_ns, done);
      quiesce_turns_.act(done, {.uids = {asking}, .deadline_ns = deadline_ns},
                         [&backend] { return backend.let_go_of_released(); });
    });
  }
  void add_plan(SessionId session, PlanSpec spec, Done<PlanId> done) override {
    ask(std::move(done), [this, session, spec] { return requests_.add_plan(session, spec); });
  }
  void pay_plans(SessionId session, std::uint64_t more) override {
    mailbox_.post({[this, session, more] { requests_.pay_plans(session, more); }, [] {}});
  }
  void remove_plan(SessionId session, PlanId plan, Done<void> done) override {
    post(done, [this, session, plan, done] {
      const auto remove = [this, session, plan] { return requests_.remove_plan(session, plan); };
      const PersistentPlan* held = worker_->state().plans.find(plan);
      const bool is_in_a_grid = held != nullptr && held->resident_on >= 0;
      is_in_a_grid ? quiesce_turns_.act(done, {.who = {session}}, remove) : answer(done, remove);
    });
  }
  void form_communicator(CommunicatorSpec spec, Done<std::vector<MemberId>> done) override {
    QuiesceTurns::Claim claim{.deadline_ns = spec.deadline_ns};
    for (const RankSpec& rank : spec.ranks) claim.who.push_back(rank.session);
    // Each rank will leave, too, and cannot be made to wait then.
    claim.cost = 1 + claim.who.size();
    ask_quiesced(
        std::move(done), std::move(claim),
        [this, spec = std::move(spec), made = share(std::unique_ptr<CommunicatorExtension>())] {
          return requests_.form_communicator(spec, *made);
        });
  }
  void abort_communicator(SessionId session, MemberId member, std::string why,
                          Done<void> done) override {
    post(done, [this, session, member, why = std::move(why), done = answering(done)] {
      requests_.abort_communicator(session, member, why, done);
    });
  }
  void leave_communicator(SessionId session, MemberId member, Done<void> done) override {
    post(done, [this, session, member, done = answering(done)] {
      requests_.leave_communicator(session, member, done);
    });
  }
  void describe(SessionId session, MemberId member, Done<CommunicatorSnapshot> done) override {
    ask(std::move(done), [this, session, member] { return requests_.describe(session, member); });
  }
  void open_link(LinkSpec link, Done<void> done) override {
    ask(std::move(done), [this, link = share(std::move(link))]() -> Status {
      const PeerId peer = link->peer;
      const auto descriptors = worker_->state().nodes.open_link(std::move(*link));
      if (!descriptors) return descriptors.error();
      for (const int descriptor : *descriptors) {
        // It closes with the link, and is then forgotten.
        const Status watched = doze_.watch(descriptor, EPOLLIN | EPOLLOUT);
        if (watched) continue;
        worker_->state().nodes.close_link(peer, watched.error());
        return watched;
      }
      return {};
    });
  }
  void close_link(PeerId peer, Error why, Done<void> done) override {
    ask(std::move(done), [this, peer, why = std::move(why)]() -> Status {
      worker_->state().nodes.close_link(peer, why);
      return {};
    });
  }
  void export_mailbox(SessionId session, MemberId member, Done<MailboxDescriptors> done) override {
    ask(std::move(done),
        [this, session, member] { return requests_.export_mailbox(session, member); });
  }
  bool on_gpus() const override { return worker_->state().backend->on_gpus(); }
  void begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes,
                       Done<std::uint64_t> done) override {
    post(done, [this, ranks, room_bytes, done] {
      const Status begun = requests_.begin_measuring(ranks, room_bytes);
      if (!begun) return done(begun.error());
      quiesce_turns_.act(done, {}, [this] { return requests_.prepare_measuring(); });
    });
  }
  void measure(GpuMeasurement what, Done<double> done) override {
    post(done, [this, what, done] { requests_.measure(what, done); });
  }
  void end_measuring(Done<void> done) override {
    ask(std::move(done), [this]() -> Status {
      requests_.end_measuring();
      return {};
    });
  }
  void measure_flag(std::uint32_t gpu, Done<FlagEcho> done) override {
    post(done, [this, gpu, done] { requests_.measure_flag(gpu, done); });
  }
  void inspect(Done<WorkerSnapshot> done) override {
    ask(std::move(done), [this]() -> Result<WorkerSnapshot> {
      WorkerSnapshot shot = requests_.inspect();
      shot.slowest_turn_ns = times_.slowest_ns();
      shot.state = waits_.has_slept()             ? "sleeping"
                   : shot.operations_pending != 0 ? "busy"
                                                  : "polling";
      return shot;
    });
  }
  void use_settings(std::shared_ptr<const Settings> settings) override {
    mailbox_.post({[this, settings] {
                     waits_.use(*settings);
                     requests_.use_settings(settings);
                   },
                   [] {}});
  }
  void use_tuning(std::shared_ptr<const TuningTable> tuning) override {
    mailbox_.post({[this, tuning] { requests_.use_tuning(tuning); }, [] {}});
  }
  void drain(std::chrono::nanoseconds deadline, Done<void> done) override {
    const std::uint64_t until =
        now_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(0, deadline.count()));
    post(done, [this, until, done] { requests_.drain(until, done); });
  }
  std::uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  // std::function wants to copy what it holds; a spec owns descriptors.
  template <typename T>
  static std::shared_ptr<T> share(T value) {
    return std::make_shared<T>(std::move(value));
  }
  // `done` may be empty.
  static Done<void> answering(const Done<void>& done) {
    return [done](Result<void> result) {
      if (done) done(std::move(result));
    };
  }
  template <typename T, typename Act>
  void post(const Done<T>& done, Act act) {
    mailbox_.post({std::move(act), [done] {
                     if (done) done(stopped());
                   }});
  }
  template <typename T, typename Act>
  void ask(Done<T> done, Act act) {
    post(done, [done, act = std::move(act)] {
      if (done) {
        done(act());
      } else {
        static_cast<void>(act());
      }
    });
  }

  template <typename T, typename Act>
  static void answer(const Done<T>& done, const Act& act) {
    Result<T> result = act();
    if (done) done(std::move(result));
  }
  template <typename T, typename Act>
  void ask_quiesced(Done<T> done, QuiesceTurns::Claim claim, Act act) {
    post(done, [this, done, claim = std::move(claim), act = std::move(act)] {
      quiesce_turns_.act(done, claim, act);
    });
  }

  std::unique_ptr<Worker> worker_;
  ControlRequests requests_;
  QuiesceTurns quiesce_turns_;
  TurnTimes times_;
  Doze doze_;
  Mailbox mailbox_;
  TurnWaits waits_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> progress_{0};
};

void ThreadedWorker::run() {
  // Naps of 50 us would become naps of 100 us: operations wait for their end.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  const bool freezes = failpoint("worker.freeze"), is_lost = failpoint("worker.lost");
  std::uint64_t now = now_ns();
  times_.begin(now);
  waits_.begin(now);
  while (!stop_.load(std::memory_order_acquire)) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    worker_->state().backend->begin_turn();
    bool worked = mailbox_.act(kMessagesNs);
    worked |= quiesce_turns_.take();
    worked |= requests_.go_on_measuring();
    worked |= worker_->poll_sessions();
    worked |= worker_->poll_nodes(now);
    while (freezes && worker_->state().pending() != 0 && !stop_.load(std::memory_order_acquire))
      ::sched_yield();
    // Before anything is started: what is past its deadline must not run any more.
    worker_->sweep_deadlines(worked ? now_ns() : now);
    worked |= worker_->settle();
    worked |= worker_->execute();
    worked |= worker_->reap();
    worked |= worker_->settle();
    if (worker_->lost() || (is_lost && worker_->state().pending() != 0)) {
      log::error("a GPU is lost: ending, so that the service manager starts a new daemon");
      break;
    }

    const std::uint64_t before = now;
    now = now_ns();
    if (times_.note(before, now, worked)) requests_.set_busy(times_.busy_fraction());
    now = waits_.after_turn(worked, now);
  }
  mailbox_.close();
  quiesce_turns_.refuse_all(stopped());
  requests_.stop_measuring(stopped());
  while (!worker_->shut_down()) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    waits_.nap();
  }
  mailbox_.refuse_rest();
}

}  // namespace

Result<std::unique_ptr<DeviceWorker>> DeviceWorker::create(Parts parts) {
  Result<Doze> doze = Doze::create();
  if (!doze) return std::move(doze).error();
  Result<UniqueFd> event = ring::EventDoorbell::create();
  if (!event) return std::move(event).error();
  const std::shared_ptr<const Settings> settings = parts.settings;
  Metrics& metrics = parts.metrics;
  Result<std::unique_ptr<Worker>> worker = Worker::create(std::move(parts));
  if (!worker) return std::move(worker).error();
  auto made = std::make_unique<ThreadedWorker>(std::move(worker).value(), *settings, metrics,
                                               *std::move(doze), std::move(event).value());
  ARC_RETURN_IF_ERROR(made->watch_mailbox());
  return std::unique_ptr<DeviceWorker>(std::move(made));
}

}  // namespace arcomm
