#include "client/src/host/rings/submission.h"

#include <cstring>
#include <thread>
#include <utility>

#include "client/src/host/in_call/in_call_path.h"
#include "client/src/host/ticket_table.h"

namespace arcomm::client {
namespace {

Error failure_in(const ring::Completion& completion) {
  char detail[sizeof(completion.detail) + 1] = {};
  std::memcpy(detail, completion.detail, sizeof(completion.detail));
  Error why{error_code_from(completion.code), reason_from(completion.reason), detail,
            completion.culprit_rank};
  if (why.message.empty()) why.message = text_of(why.reason);
  return why;
}

Error corrupt(const char* what) {
  return error(ErrorCode::Unavailable, Reason::Corrupt, what,
               ": the daemon or this process wrote where it must not");
}

}  // namespace

Submission::Submission(Parts parts)
    : descriptors_(parts.descriptors),
      aborts_(parts.aborts),
      rings_(std::move(parts.segment), std::move(parts.doorbell), parts.max_in_flight),
      questions_(rings_),
      copying_({.segment_filled = [this](Operation& operation) { pump(*operation.member); },
                .copying_stopped = [this](Operation& operation) { ends_.settle(operation); }}),
      ends_(parts.staging, copying_, parts.aborts),
      requests_(rings_, ends_),
      loss_(rings_, requests_, ends_),
      sleepers_(rings_.control().completions.consumer_sleeps) {}

void Submission::add(Member& member) {
  const Lock lock(mutex_);
  if (loss_.why()) member.fail(*loss_.why());
  requests_.add(member);
}

void Submission::remove(Member& member, const Error& why) {
  {
    const Lock lock(mutex_);
    member.fail(why);
    pump(member);
    requests_.remove(member);
    aborts_.forget(member.id);  // its caller tells the daemon that it leaves
  }
  sleepers_.wake();
}

Status Submission::submit(Operation& operation) {
  if (operation.num_staged > 0) StagedCopying::fill_first(operation);
  Member& member = *operation.member;
  // An operation that meets its peers in its call ends, or comes here as well, before this one.
  InCallPath::Turn turn;
  if (member.in_call) {
    turn = member.in_call->turn(operation.deadline);
    if (!turn) {
      give_up(member);
      return InCallPath::late_for_turn();
    }
  }
  const Lock lock(mutex_);
  if (loss_.is_told()) look_at_state();
  if (loss_.why()) return *loss_.why();
  if (member.failure) return *member.failure;
  operation.submitted.store(true, std::memory_order_release);
  member.active.fetch_add(1, std::memory_order_relaxed);
  // The second slot is filled by whoever waits: an asynchronous call returns early.
  if (operation.num_staged > 1) copying_.queue(operation);
  if (!requests_.push(operation)) lose_requests();
  return {};
}

void Submission::lose_requests() {
  loss_.lose(corrupt("the request ring's index is impossible"));
}

void Submission::reap() {
  bool completed = false;
  for (;;) {
    ring::Completion completion;
    const ring::Pop seen = rings_.receive(completion);
    if (seen == ring::Pop::Empty) break;
    if (seen == ring::Pop::Corrupt) {
      if (!loss_.lost()) loss_.lose(corrupt("the completion ring is not in order"));
      break;
    }
    complete(completion);
    completed = true;
  }
  if (!completed) return;
  for (Member* member : requests_.members()) {
    if (!member->queue.empty()) pump(*member);
  }
}

void Submission::complete(const ring::Completion& completion) {
  if (!rings_.is_in_flight(completion.ticket)) return questions_.take(completion);
  if (reason_from(completion.reason) == Reason::DaemonLost && completion.code != 0) {
    // The daemon after the one that had this session: nothing else of it will be answered either.
    return loss_.lose(failure_in(completion));
  }
  const bool succeeded = completion.code == 0;
  if (succeeded && completion.stage == ring::Stage::Ordered) return;  // Done follows
  const SessionRings::InFlight request = rings_.take(completion.ticket);
  Operation& operation = *request.operation;
  if (!succeeded) {
    Error why = failure_in(completion);
    // The daemon read the request after the member had left: the caller knows why it left.
    const std::optional<Error>& left = request.member->failure;
    if (left && why.reason == Reason::UnknownHandle) why = *left;
    ends_.fail(operation, why, completion.seq);
    return;
  }
  if (operation.num_staged == 0) {
    ++operation.finished;
  } else {
    operation.staged_for(request.segment).state = StagedSegment::State::Reduced;
    copying_.queue(operation);
  }
  ends_.settle(operation);
}

void Submission::abandon(Operation& operation) {
  const std::shared_ptr<Member> member = operation.member;
  Lock lock(mutex_);
  while (operation.copying) {  // a memcpy into the caller's memory must not outlive its call
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (operation.done.load(std::memory_order_relaxed)) {
    tickets().recycle(operation);
    return;
  }
  operation.abandoned = true;
  ends_.revoke(*member,
               error(ErrorCode::FailedPrecondition, Reason::Revoked,
                     "an earlier operation of this communicator was given up because the daemon "
                     "did not answer: call arcCommRebuild, or destroy the communicator"));
  ends_.fail(operation, error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                              "the daemon did not answer in time"));
  pump(*member);
  lock.unlock();
  sleepers_.wake();
}

void Submission::give_up(Member& member) {
  {
    const Lock lock(mutex_);
    ends_.give_up(member);
    pump(member);
  }
  sleepers_.wake();
}

bool Submission::ask(Question& question) {
  const Lock lock(mutex_);
  if (loss_.is_told()) look_at_state();
  if (loss_.why()) return false;
  const ring::Push asked = questions_.ask(question);
  if (asked == ring::Push::Corrupt) lose_requests();
  return asked == ring::Push::Done;
}

std::vector<PlanId> Submission::take_late_plans() {
  const Lock lock(mutex_);
  if (!loss_.why()) reap();
  return questions_.take_late();
}

bool Submission::end(Question& question) {
  const Lock lock(mutex_);
  questions_.give_up(question);
  return question.is_answered.load(std::memory_order_relaxed);
}

Error Submission::failure_of(const Member& member) const {
  if (!member.failed.load(std::memory_order_acquire)) {
    return {ErrorCode::Ok, Reason::None, "", -1};
  }
  const Lock lock(mutex_);
  return *member.failure;
}

void Submission::work(const Enough& enough) {
  bool wake = false;
  {
    Lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // someone else is at it, for us too
    reap();
    copying_.run(lock, enough);
    look_at_state();
    // Another thread may copy on.
    wake = ends_.take_any_ended() || questions_.take_any_answered() || !copying_.empty();
  }
  if (wake) sleepers_.wake();
  // At once: what this thread waits for may itself wait for peers that go on only when told.
  if (aborts_.any() && !enough()) aborts_.tell();
}

void Submission::progress(std::chrono::microseconds copying) {
  const auto until = Deadline::Clock::now() + copying;
  work([until] { return Deadline::Clock::now() >= until; });
}

void Submission::sleep(std::chrono::nanoseconds slice, const std::function<bool()>& finished) {
  sleepers_.sleep(slice, finished, [this] {
    const Lock lock(mutex_);
    return rings_.has_completion() || !copying_.empty();
  });
}

void Submission::look_at_state() {
  if (loss_.lost() || !loss_.is_told()) return;
  reap();
  loss_.lose(loss_.told());
}

Error Submission::loss() const {
  const Lock lock(mutex_);
  return loss_.why().value_or(Error{ErrorCode::Ok, Reason::None, "", -1});
}

void Submission::check() {
  if (lost() || !descriptors_.hung_up()) return;
  {
    const Lock lock(mutex_);
    reap();
    look_at_state();
    loss_.lose(error(ErrorCode::Unavailable, Reason::DaemonLost,
                     "the daemon is gone: create the communicator again once it is back"));
  }
  sleepers_.wake();
}

void Submission::close(const Error& why) {
  {
    const Lock lock(mutex_);
    reap();
    loss_.lose(why);
  }
  sleepers_.wake();
}

}  // namespace arcomm::client
