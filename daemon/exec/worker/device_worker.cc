// The worker's thread: its mailbox, the turns of its loop, and its sleep.
#include "daemon/exec/worker/device_worker.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/failpoint.h"
#include "daemon/exec/worker/control_requests.h"
#include "daemon/exec/worker/mailbox.h"
#include "daemon/exec/worker/rest_queue.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "transport/device/lost_time.h"
#include "transport/device/pause.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kYieldAfterNs = 3'000;  // of empty turns
constexpr std::uint64_t kLingerNs = 1'000;      // about two switches to another process and back
constexpr std::uint64_t kTileNapNs = 50'000;    // while streams have the last tiles
constexpr std::uint64_t kNapNs = 1'000'000;     // while a session does not read its completions
constexpr std::uint64_t kLongestSleepNs = 500'000'000;  // so that progress() shows life
// After so long what else is due waits for the next turn.
constexpr std::uint64_t kRestNs = 10'000'000;
constexpr std::uint64_t kMessagesNs = 200'000;
constexpr std::uint64_t kBusyWindowNs = 1'000'000'000;

Error stopped() {
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the device worker has stopped");
}

class ThreadedWorker final : public DeviceWorker {
 public:
  ThreadedWorker(std::unique_ptr<Worker> worker, const Settings& settings, Metrics& metrics,
                 UniqueFd epoll, UniqueFd event)
      : worker_(std::move(worker)),
        requests_(*worker_),
        metrics_(metrics),
        spin_ns_(settings.wait.spin_us * 1000),
        epoll_(std::move(epoll)),
        mailbox_(std::move(event)) {
    worker_->state().nodes.ring_with([this] { mailbox_.bell().ring(); });
  }

  Status watch(int fd, std::uint32_t events = EPOLLIN) {
    epoll_event event{};
    // Edge-triggered, and never read: the descriptor's other copy is a client's, who could make a
    // read block. A link's is read and written until it says no more.
    event.events = events | EPOLLET;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot watch a doorbell: ", std::strerror(errno));
  }
  // Closing is not enough: the client's copy keeps the descriptor, and our interest in it, alive.
  void unwatch(int fd) {
    if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
  int mailbox_fd() const { return mailbox_.event_fd(); }

  void run() override;
  void stop() override {
    stop_.store(true, std::memory_order_release);
    mailbox_.post({[] {}, [] {}});
  }

  void open_session(SessionSpec spec, Done<void> done) override {
    ask(std::move(done), [this, spec = share(std::move(spec))]() -> Status {
      const int doorbell = spec->doorbell.get();
      const SessionId id = spec->id;
      ARC_RETURN_IF_ERROR(watch(doorbell));
      Status opened = requests_.open_session(std::move(*spec), now_ns());
      if (opened) log::debug("session {} opened", fmt::streamed(id));
      return opened;
    });
  }
  void close_session(SessionId session, Reason reason, std::string why, Done<void> done) override {
    post(done, [this, session, reason, why = std::move(why), done] {
      unwatch(requests_.doorbell_of(session));
      requests_.close_session(session, reason, why, done);
    });
  }
  void add_buffer(SessionId session, BufferSpec spec, Done<BufferId> done) override {
    const Rest rest{.who = {session}, .deadline_ns = spec.deadline_ns};
    const auto held = share(std::move(spec));
    // What comes of it not at all is a last reference, perhaps: closed elsewhere. At the end there
    // is nobody whom that would hold up.
    Done<BufferId> end = [this, held, done = std::move(done)](Result<BufferId> added) {
      if (!added && added.error().reason != Reason::ShuttingDown) requests_.let_go(*held);
      done(std::move(added));
    };
    ask_at_rest(std::move(end), rest,
                [this, session, held] { return requests_.add_buffer(session, *held); });
  }
  void allocate_buffer(SessionId session, AllocationSpec spec,
                       Done<AllocatedBuffer> done) override {
    const Rest rest{.who = {session}, .deadline_ns = spec.deadline_ns};
    ask_at_rest(std::move(done), rest, [this, session, spec = std::move(spec)] {
      return requests_.allocate_buffer(session, spec.device, spec.bytes);
    });
  }
  void remove_buffer(SessionId session, BufferId buffer, Done<void> done) override {
    ask(std::move(done),
        [this, session, buffer] { return requests_.remove_buffer(session, buffer); });
  }
  void add_plan(SessionId session, PlanSpec spec, Done<PlanId> done) override {
    ask(std::move(done), [this, session, spec] { return requests_.add_plan(session, spec); });
  }
  void remove_plan(SessionId session, PlanId plan, Done<void> done) override {
    post(done, [this, session, plan, done] {
      const auto remove = [this, session, plan] { return requests_.remove_plan(session, plan); };
      const PersistentPlan* held = worker_->state().plans.find(plan);
      const bool is_in_a_grid = held != nullptr && held->resident_on >= 0;
      is_in_a_grid ? act_at_rest(done, {.who = {session}}, remove) : answer(done, remove);
    });
  }
  void form_communicator(CommunicatorSpec spec, Done<std::vector<MemberId>> done) override {
    Rest rest{.deadline_ns = spec.deadline_ns};
    for (const RankSpec& rank : spec.ranks) rest.who.push_back(rank.session);
    // Each rank will leave, too, and cannot be made to wait then.
    rest.cost = 1 + rest.who.size();
    ask_at_rest(
        std::move(done), std::move(rest),
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
        const Status watched = watch(descriptor, EPOLLIN | EPOLLOUT);
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
  bool on_gpus() const override { return worker_->state().backend->starts_by_doorbell(); }
  void begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes,
                       Done<std::uint64_t> done) override {
    post(done, [this, ranks, room_bytes, done] {
      const Status begun = requests_.begin_measuring(ranks, room_bytes);
      if (!begun) return done(begun.error());
      act_at_rest(done, {}, [this] { return requests_.prepare_measuring(); });
    });
  }
  void measure(GpuMeasurement what, Done<double> done) override {
    post(done, [this, what, done] {
      const Status begun = requests_.measure(what);
      if (!begun) return done(begun.error());
      measuring_ = done;
    });
  }
  void end_measuring(Done<void> done) override {
    ask(std::move(done), [this]() -> Status {
      requests_.end_measuring();
      return {};
    });
  }
  void inspect(Done<WorkerSnapshot> done) override {
    ask(std::move(done), [this]() -> Result<WorkerSnapshot> {
      WorkerSnapshot shot = requests_.inspect();
      shot.slowest_turn_ns = slowest_turn_ns_;
      shot.state = resting_ ? "sleeping" : shot.operations_pending != 0 ? "busy" : "polling";
      return shot;
    });
  }
  void use_settings(std::shared_ptr<const Settings> settings) override {
    mailbox_.post({[this, settings] {
                     spin_ns_ = settings->wait.spin_us * 1000;
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
  // How a request that brings GPUs to rest waits for its turn.
  struct Rest {
    std::vector<SessionId> who = {};  // at whose users' expense
    std::uint64_t cost = 1;
    std::uint64_t deadline_ns = 0;
  };
  using Try = RestQueue::Try;
  template <typename T>
  static Try tried(const Done<T>& done, Result<T> result) {
    // Of a device that is held up; where it is lost, or the daemon ends, the reason says so.
    if (!result && result.error().code == ErrorCode::Unavailable &&
        result.error().reason == Reason::None)
      return {.state = Try::State::HeldUp, .why = std::move(result).error()};
    if (done) done(std::move(result));
    return {};
  }
  // None: it goes on in another turn.
  template <typename T>
  static Try tried(const Done<T>& done, Result<std::optional<T>> result) {
    if (!result) return tried(done, Result<T>(std::move(result).error()));
    if (!*result) return {.state = Try::State::GoesOn};
    return tried(done, Result<T>(std::move(**result)));
  }
  // In its turn. The worker's.
  template <typename T, typename Act>
  void act_at_rest(const Done<T>& done, const Rest& rest, const Act& act) {
    const auto refuse = [done](Error why) {
      if (done) done(std::move(why));
    };
    if (!on_gpus()) {
      if (Try one = tried(done, act()); one.state == Try::State::HeldUp) refuse(std::move(one.why));
      return;
    }
    RestQueue::Request request{.uids = {},
                               .cost = rest.cost,
                               .act = [done, act] { return tried(done, act()); },
                               .refuse = refuse,
                               .deadline_ns = rest.deadline_ns};
    for (const SessionId id : rest.who) {
      const Session* session = worker_->state().sessions.find(id);
      if (session != nullptr) request.uids.push_back(session->origin().uid);
    }
    rests_.add(std::move(request), now_ns());
  }
  template <typename T, typename Act>
  void ask_at_rest(Done<T> done, Rest rest, Act act) {
    post(done, [this, done, rest = std::move(rest), act = std::move(act)] {
      act_at_rest(done, rest, act);
    });
  }

  bool take_messages();
  // Gives the core, or the line, to others for a moment. Returns when that was over, as the others
  // do, too: it is no part of a turn.
  std::uint64_t yield(std::uint64_t now);
  std::uint64_t relax(std::uint64_t now);
  // While streams have the last tiles of what runs; they ring nobody when they are done.
  std::uint64_t await_tiles(std::uint64_t now, std::uint64_t last_work);
  bool take_rests();
  bool go_on_measuring();
  void rest(std::uint64_t now);
  void sleep(std::uint64_t sleep_ns);
  void note(std::uint64_t before, std::uint64_t after, bool worked);

  std::unique_ptr<Worker> worker_;
  ControlRequests requests_;
  RestQueue rests_;
  std::deque<RestQueue::Request> due_;  // taken from there
  std::deque<Message> messages_;        // taken, and left for the next turn
  Done<double> measuring_;              // who waits for what the backend measures; or empty
  Metrics& metrics_;
  std::uint64_t spin_ns_;
  UniqueFd epoll_;
  Mailbox mailbox_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> progress_{0};
  bool resting_ = false;  // slept just before the message that asks
  LostTime lost_time_;
  std::uint64_t window_ns_ = 0, busy_ns_ = 0, slowest_turn_ns_ = 0;
};

// A user whose sixty processes die at once sends as many messages: requests are read in between.
bool ThreadedWorker::take_messages() {
  if (mailbox_.pending()) {
    for (Message& message : mailbox_.take()) messages_.push_back(std::move(message));
  }
  if (messages_.empty()) return false;
  const std::uint64_t until = now_ns() + kMessagesNs;
  do {
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    message.act();
  } while (!messages_.empty() && now_ns() < until);
  return true;
}

bool ThreadedWorker::take_rests() {
  if (due_.empty()) {
    if (rests_.empty()) return false;
    for (RestQueue::Request& request : rests_.take(now_ns())) due_.push_back(std::move(request));
    if (due_.empty()) return false;
  }
  worker_->state().backend->at_rest([this] {
    const std::uint64_t until = now_ns() + kRestNs;
    do {
      RestQueue::Request request = std::move(due_.front());
      due_.pop_front();
      const std::uint64_t since = now_ns();
      RestQueue::Try tried = request.act();
      tried.took_ns = now_ns() - since;
      if (tried.state == Try::State::Answered) continue;
      rests_.put_back(std::move(request), std::move(tried), now_ns());
    } while (!due_.empty() && now_ns() < until);
  });
  return true;
}

bool ThreadedWorker::go_on_measuring() {
  if (!measuring_) return false;
  Result<std::optional<double>> took = requests_.measured();
  if (took && !*took) return true;
  const Done<double> done = std::exchange(measuring_, nullptr);
  done(took ? Result<double>(**took) : Result<double>(std::move(took).error()));
  return true;
}

void ThreadedWorker::run() {
  // Naps of 50 us would become naps of 100 us: operations wait for their end.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  const bool freezes = failpoint("worker.freeze"), is_lost = failpoint("worker.lost");
  std::uint64_t now = now_ns();
  std::uint64_t last_work = now;
  window_ns_ = now;
  while (!stop_.load(std::memory_order_acquire)) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    worker_->state().backend->begin_turn();
    bool worked = take_messages();
    worked |= take_rests();
    worked |= go_on_measuring();
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
    note(before, now, worked);
    // Where other processes use this core, sleep is the better wait, and a yield the worst.
    const bool sleeps = lost_time_.sleeps(now);
    worker_->state().sessions.set_core_is_shared(sleeps);
    if (worked) {
      last_work = now;
      resting_ = false;
      // Tiles and floods keep this core busy for long, and where all is answered only clients can
      // go on: let one that shares this core take its result or make its next request.
      if (!sleeps && worker_->oversubscribed() &&
          (worker_->computing() || worker_->flooded() || worker_->state().pending() == 0)) {
        now = yield(now);
      }
    } else if (worker_->computing()) {
      now = await_tiles(now, last_work);
    } else if ((sleeps || now - last_work >= spin_ns_) && worker_->rest_ns(now) != 0) {
      rest(now);
      now = now_ns();
      window_ns_ = std::max(window_ns_, now > kBusyWindowNs ? now - kBusyWindowNs : 0);
    } else if (worker_->oversubscribed() &&
               (worker_->state().pending() == 0 || now - last_work >= kLingerNs)) {
      // At once: the ranks that would make the next request wait for this core. Spinning 3 us first
      // doubled the time of 1 KB over 4 ranks on 2 cores (12.4 instead of 6.3 us). Only where some
      // ranks of an operation have just called are the others worth a short wait: those that share
      // this core have had their turn, so that they run on another.
      now = yield(now);
    } else {
      now = relax(now);
    }
  }
  for (Message& message : mailbox_.close()) messages_.push_back(std::move(message));
  for (const RestQueue::Request& request : std::exchange(due_, {})) request.refuse(stopped());
  rests_.refuse_all(stopped());
  if (const Done<double> done = std::exchange(measuring_, nullptr)) done(stopped());
  while (!worker_->shut_down()) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    sleep(kTileNapNs);
  }
  for (const Message& message : std::exchange(messages_, {})) message.refuse();
}

std::uint64_t ThreadedWorker::yield(std::uint64_t now) {
  ::sched_yield();
  const std::uint64_t after = now_ns();
  if (!worker_->computing()) lost_time_.paused(now, after);  // else it went to the streams
  return after;
}

std::uint64_t ThreadedWorker::relax(std::uint64_t now) {
  pause_briefly();
  const std::uint64_t after = now_ns();
  lost_time_.paused(now, after);
  return after;
}

std::uint64_t ThreadedWorker::await_tiles(std::uint64_t now, std::uint64_t last_work) {
  // Awake, and leaving them the core. A GPU's end is looked for more often than naps allow.
  if (lost_time_.sleeps(now) && !worker_->state().backend->starts_by_doorbell()) {
    sleep(kTileNapNs);
    return now_ns();
  }
  return now - last_work >= kYieldAfterNs ? yield(now) : now;
}

void ThreadedWorker::rest(std::uint64_t now) {
  mailbox_.bell().arm();
  const bool is_called =
      mailbox_.pending() || !messages_.empty() || !due_.empty() || worker_->look_at_nodes(now);
  const Worker::Rest rest = is_called ? Worker::Rest::Awake : worker_->arm();
  if (rest != Worker::Rest::Awake) {
    const std::uint64_t deadline = worker_->next_deadline_ns();
    std::uint64_t sleep_ns = deadline > now ? std::min(deadline - now, kLongestSleepNs) : 0;
    if (const std::uint64_t due = rests_.next_ns(now); due > now) {
      sleep_ns = std::min(sleep_ns, due - now);
    } else {
      sleep_ns = 0;
    }
    if (rest == Worker::Rest::Nap || worker_->state().nodes.must_be_polled())
      sleep_ns = std::min(sleep_ns, kNapNs);
    resting_ = true;
    metrics_.worker_sleeps.add();
    sleep(std::min(sleep_ns, worker_->rest_ns(now)));
  }
  worker_->disarm();
  mailbox_.bell().disarm();
}

void ThreadedWorker::sleep(std::uint64_t sleep_ns) {
  epoll_event events[16];
  if (sleep_ns < kNapNs) {
    const timespec nap{0, static_cast<long>(sleep_ns)};
    if (::epoll_pwait2(epoll_.get(), events, 16, &nap, nullptr) >= 0 || errno != ENOSYS) return;
  }
  ::epoll_wait(epoll_.get(), events, 16, static_cast<int>((sleep_ns + 999'999) / 1'000'000));
}

void ThreadedWorker::note(std::uint64_t before, std::uint64_t after, bool worked) {
  if (worked) busy_ns_ += after - before;
  if (after - before > slowest_turn_ns_) {
    slowest_turn_ns_ = after - before;
    metrics_.worker_turn_ns.note(slowest_turn_ns_);
  }
  if (after - window_ns_ < kBusyWindowNs) return;
  requests_.set_busy(static_cast<double>(busy_ns_) / static_cast<double>(after - window_ns_));
  metrics_.worker_busy_ns.add(busy_ns_);
  busy_ns_ = 0;
  window_ns_ = after;
}

}  // namespace

Result<std::unique_ptr<DeviceWorker>> DeviceWorker::create(Parts parts) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create an epoll: ", std::strerror(errno));
  }
  Result<UniqueFd> event = ring::EventDoorbell::create();
  if (!event) return std::move(event).error();
  const std::shared_ptr<const Settings> settings = parts.settings;
  Metrics& metrics = parts.metrics;
  Result<std::unique_ptr<Worker>> worker = Worker::create(std::move(parts));
  if (!worker) return std::move(worker).error();
  auto made = std::make_unique<ThreadedWorker>(std::move(worker).value(), *settings, metrics,
                                               std::move(epoll), std::move(event).value());
  ARC_RETURN_IF_ERROR(made->watch(made->mailbox_fd()));
  return std::unique_ptr<DeviceWorker>(std::move(made));
}

}  // namespace arcomm
