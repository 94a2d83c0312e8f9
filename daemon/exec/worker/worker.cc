#include "daemon/exec/worker/worker.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// The more there are, the longer a look at all their rings takes.
constexpr std::size_t kSessionsPerStep = 4;
// Whose next requests a core can fetch side by side.
constexpr std::size_t kFetchedAhead = 16;

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

// Somebody asked for the end, or a process ended that nobody waited for: that is everyday life.
bool is_orderly(const Communicator& communicator) {
  const Reason why = communicator.revoked.reason;
  return why == Reason::RemoteAborted || why == Reason::ShuttingDown ||
         (why == Reason::RemoteDied && communicator.cut_off == 0);
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(DeviceWorker::Parts parts) {
  if (parts.settings == nullptr || parts.tuning == nullptr) {
    return error(ErrorCode::InvalidArgument, Reason::Bug,
                 "a device worker needs settings and a tuning table");
  }
  std::unique_ptr<Worker> worker(new Worker(std::move(parts)));
  const DeviceWorker::Parts& held = worker->parts_;
  if (!held.gpus.empty()) {
    Result<std::unique_ptr<GpuPlane>> plane =
        GpuPlane::create(held.gpus, held.open_gpu, *held.settings);
    if (!plane) return std::move(plane).error();
    worker->gpus_ = std::move(plane).value();
    worker->gpu_executor_ =
        std::make_unique<GpuExecutor>(*worker->gpus_, worker->communicators_, worker->buffers_,
                                      worker->plans_, held.gpus, held.tuning);
    worker->gpu_executor_->use_settings(*held.settings);
    worker->admission_.limits.doorbells_only = true;
    return worker;
  }
  Result<std::unique_ptr<Executor>> executor = Executor::create(
      held.device, held.settings->host.streams, worker->communicators_, held.tuning);
  if (!executor) return std::move(executor).error();
  worker->executor_ = std::move(executor).value();
  return worker;
}

Worker::Worker(DeviceWorker::Parts parts)
    : parts_(std::move(parts)),
      communicators_([this](Communicator& communicator) { on_revoked(communicator); }),
      admission_(communicators_, buffers_, plans_, operations_),
      completions_(buffers_, operations_, parts_.recorder, parts_.metrics),
      cores_(usable_cores()) {
  admission_.limits = AdmissionLimits::from(*parts_.settings, false);
}

Worker::~Worker() {
  shut_down();
}

bool Worker::poll_sessions() {
  bool found = gpus_ != nullptr && poll_doorbells();
  const std::size_t count = polled_.size();
  yield_early_ = flooded_ = false;
  if (count == 0) return found;
  look_every_ = kFew + static_cast<int>(count / kSessionsPerStep);
  first_polled_ = (first_polled_ + 1) % count;  // nobody is always first
  if (count <= kFetchedAhead) {
    for (Session* session : polled_) session->fetch_ahead();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = first_polled_ + i;
    found |= poll(*polled_[at < count ? at : at - count]);
  }
  if (!lost_.empty()) quarantine_lost();
  return found;
}

bool Worker::poll(Session& session) {
  ring::WorkRequest slot;
  std::uint64_t now = 0;  // read once for a batch, and only if there is one
  session.light = false;
  int taken = 0;
  for (; goes_on(taken); ++taken) {
    if (!session.readable()) return taken != 0;
    const ring::Pop seen = session.peek();
    if (seen == ring::Pop::Empty) {
      session.light = taken <= kFew;
      if (session.light && taken != 0) yield_early_ = true;  // what it called is to start soon
      return taken != 0;
    }
    const Session::Room room = session.room();
    if (room == Session::Room::No) return taken != 0;
    if (room == Session::Room::Corrupt) {
      lose(session, "the completion ring's index left its bounds");
    } else if (seen == ring::Pop::Corrupt || session.pop(slot) != ring::Pop::Done) {
      lose(session, "the request ring's index or a slot's position is wrong");
    } else {
      if (now == 0) now = now_ns();
      admit(session, slot, now);
      continue;
    }
    return true;
  }
  const bool has_more = session.readable() && session.peek() != ring::Pop::Empty;
  flooded_ = flooded_ || has_more;
  session.light = !has_more && taken <= kFew;
  return true;
}

// Beside a tenant with a million operations a second, turns of 32 made the few of another take five
// times as long; turns that are always short cost the busy one a fifth of its throughput.
bool Worker::goes_on(int done) {
  if (done == 0 || done % look_every_ != 0) return done < kMostAtOnce;
  yield_early_ = yield_early_ || somebody_calls();
  return !yield_early_ && done < kMostAtOnce;
}

// Whoever had much in his last turn waits for his next.
bool Worker::somebody_calls() const {
  return std::any_of(polled_.begin(), polled_.end(), [](Session* session) {
    return session->light && session->readable() && session->peek() != ring::Pop::Empty;
  });
}

void Worker::admit(Session& session, const ring::WorkRequest& slot, std::uint64_t now_ns) {
  Admitted admitted = admission_.admit(session, slot, now_ns);
  switch (admitted.verdict) {
    case Admitted::Verdict::Broken:
      return lose(session, "a request slot does not start with its magic");
    case Admitted::Verdict::Done:
      return accept(session, *admitted.operation);
    case Admitted::Verdict::Refused:
      break;
  }
  if (!completions_.refuse(session, slot, admitted, now_ns)) {
    lose(session, "the completion ring's index left its bounds");
  }
  tell_refused(admitted, now_ns);
}

void Worker::accept(Session& session, Operation& operation) {
  ++session.submitted;
  parts_.metrics.operations_in_flight.add(1);
  parts_.recorder.write(operation.record);
  communicators_.arrive(operation);
}

void Worker::tell_refused(const Admitted& admitted, std::uint64_t now_ns) {
  Member* member = admitted.member;
  if (member == nullptr) return;
  // The caller's mistake ends this operation on all ranks, so that nobody waits for it until the
  // deadline.
  Failure told = admitted.failure;
  if (told.reason != Reason::ShuttingDown) told.code = ErrorCode::FailedPrecondition;
  told = make_failure(told.code, told.reason, member->rank, "refused on rank %d: %s", member->rank,
                      admitted.failure.text.data());
  if (!admitted.out_of_step) {
    const bool late = told.reason == Reason::Timeout;
    if (late) told.code = ErrorCode::DeadlineExceeded;
    Communicator& communicator = *member->communicator;
    communicators_.refuse(*member, admitted.seq, told, now_ns);
    // As after any other timeout: its client has given it up.
    if (late) communicators_.revoke(communicator, told);
    return;
  }
  const bool skipped = admitted.seq > member->communicator->seats[member->seat].next_seq;
  told.code = ErrorCode::Aborted;
  if (skipped) communicators_.revoke(*member->communicator, told);
}

bool Worker::settle() {
  bool found = false;
  std::uint64_t now = 0;
  while (Operation* operation = communicators_.finished().pop()) {
    if (now == 0) now = now_ns();
    Session& session = *operation->session;
    const bool unheard = operation->by_doorbell && !operation->outcome.ok();
    const MemberId member = operation->member;
    const Failure failure = unheard ? operation->outcome : Failure{};
    if (!completions_.finish(*operation, now))
      lose(session, "the completion ring's index left its bounds");
    if (!std::exchange(session.to_be_woken, true)) to_wake_.push_back(&session);
    if (unheard) end_by_doorbell(member, failure);
    found = true;
  }
  if (!to_wake_.empty()) wake_clients();
  if (!lost_.empty()) quarantine_lost();
  return found;
}

void Worker::wake_clients() {
  ring::order_published();
  for (Session* session : to_wake_) {
    session->to_be_woken = false;
    session->wake_in_order();
  }
  to_wake_.clear();
}

bool Worker::execute() {
  bool found = false;
  if (gpus_ != nullptr) {
    for (int started = 0; started < kMostAtOnce && gpu_executor_->start_next(); ++started) {
      settle();
      found = true;
    }
    return found;
  }
  // Answered one by one: the first of many must not wait for the last.
  yield_early_ = false;  // that was about what is read
  const auto may_go_on = [&](int started) {
    return flooded_ ? goes_on(started) : started < kMostAtOnce;
  };
  for (int started = 0; may_go_on(started) && executor_->start_next(); ++started) {
    settle();
    found = true;
  }
  found |= executor_->work();
  return found;
}

bool Worker::reap() {
  bool found = gpus_ ? gpu_executor_->reap() : executor_->reap();
  if (found) settle();
  for (std::size_t i = 0; i < leaving_.size();) {
    if (leaving_[i].session->in_flight() != 0) {
      ++i;
      continue;
    }
    Leaving leaving = std::move(leaving_[i]);
    leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
    release(*leaving.session);
    leaving.session.reset();
    leaving.done({});
    found = true;
  }
  for (std::size_t i = 0; i < parting_.size();) {
    if (!communicators_.ended(*parting_[i].waits_for)) {
      ++i;
      continue;
    }
    const Parting parting = std::move(parting_[i]);
    parting_.erase(parting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (parting.done) parting.done({});
    found = true;
  }
  if (!draining_.empty() && pending() == 0) {
    for (const Draining& draining : std::exchange(draining_, {})) draining.done({});
    found = true;
  }
  return found;
}

void Worker::sweep_deadlines(std::uint64_t now_ns) {
  communicators_.sweep_deadlines(now_ns);
  if (gpus_ != nullptr) tend_gpus(now_ns);
  for (Draining& draining : draining_) {
    if (now_ns < draining.deadline_ns) continue;
    draining.deadline_ns = ~std::uint64_t{0};  // once; reap() answers when nothing is left
    communicators_.revoke_all(make_failure(ErrorCode::Unavailable, Reason::ShuttingDown, kNoRank,
                                           "the daemon shut down before the operation ended"));
  }
}

Worker::Rest Worker::arm() {
  Rest rest = Rest::Sleep;
  for (Session* session : polled_) session->requests_bell().arm();
  for (Session* session : polled_) {
    if (!session->readable() || session->peek() == ring::Pop::Empty) continue;
    if (session->room() != Session::Room::No) return Rest::Awake;
    rest = Rest::Nap;
  }
  return rest;
}

void Worker::disarm() {
  for (Session* session : polled_) session->requests_bell().disarm();
}

std::uint64_t Worker::next_deadline_ns() const {
  std::uint64_t next = communicators_.next_deadline_ns();
  for (const Draining& draining : draining_) next = std::min(next, draining.deadline_ns);
  return next;
}

void Worker::on_revoked(Communicator& communicator) {
  const Failure& why = communicator.revoked;
  if (gpus_ != nullptr) {
    gpu_executor_->stop(communicator);
    if (GpuGroup* group = gpus_of(communicator)) gpus_->close(*group, done_of(why));
  } else if (communicator.running()) {
    executor_->stop(communicator);
  }
  parts_.metrics.communicators_revoked[why.reason].add();
  const std::string line =
      fmt::format("communicator {} epoch {} is revoked: {} ({}); {} operations ended with it",
                  short_name(communicator.unique_id), communicator.epoch, why.message(),
                  name_of(why.reason), communicator.cut_off);
  is_orderly(communicator) ? log::info("{}", line) : log::warn("{}", line);
  if (parts_.events.communicator_revoked) {
    parts_.events.communicator_revoked(communicator.unique_id, communicator.epoch, why.reason);
  }
}

void Worker::update_oversubscription() {
  std::size_t seats = 0;
  for (const Session* session : polled_) seats += std::max<std::size_t>(1, session->members.size());
  oversubscribed_ = seats + 1 > cores_;
  for (Session* session : polled_) session->set_oversubscribed(oversubscribed_);
}

}  // namespace arcomm
