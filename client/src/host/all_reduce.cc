#include "client/src/host/all_reduce.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/src/host/memory/operation_memory.h"
#include "client/src/host/ticket_table.h"
#include "client/src/session/session.h"

namespace arcomm::client {
namespace {

// arcTest is for looking: it lends its thread for about this long, and one segment at least.
constexpr std::chrono::microseconds kCopyingInTest{200};

// Ends an operation that was never submitted.
void refuse(Operation& operation, Error why) {
  give_back_memory(operation, operation.member->session->staging());
  operation.outcome.error = std::move(why);
  operation.done.store(true, std::memory_order_release);
}

Error unknown_ticket(std::uint64_t ticket) {
  return error(
      ErrorCode::NotFound, Reason::UnknownHandle, "ticket ", ticket,
      " is unknown or was waited for already: a ticket ends with the call that returns its result");
}

// The outcome of an operation that is done; its ticket is the caller's.
Status outcome_of(Operation& operation) {
  Outcome outcome = std::move(operation.outcome);
  tickets().recycle(operation);
  if (outcome.error.code == ErrorCode::Ok) return {};
  failed_seq() = outcome.seq;
  return std::move(outcome.error);
}

// Gives the ticket to one thread at a time.
class Claim {
 public:
  static Result<Claim> take(std::uint64_t ticket) {
    Operation* operation = tickets().find(ticket);
    if (operation == nullptr) return unknown_ticket(ticket);
    if (operation->claimed.exchange(true, std::memory_order_acquire)) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                   "another thread waits for ticket ", ticket);
    }
    Claim claim(operation);
    if (tickets().find(ticket) != operation) return unknown_ticket(ticket);
    if (!operation->submitted.load(std::memory_order_acquire) &&
        !operation->done.load(std::memory_order_acquire)) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue, "ticket ", ticket,
                   " belongs to a group that is still open: call arcGroupEnd first");
    }
    return claim;
  }
  Claim(Claim&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (operation_ != nullptr) operation_->claimed.store(false, std::memory_order_release);
  }
  Operation& operator*() const { return *operation_; }
  Operation& spend(std::uint64_t ticket) {
    tickets().spend(*operation_, ticket);
    return *std::exchange(operation_, nullptr);
  }

 private:
  explicit Claim(Operation* operation) : operation_(operation) {}
  Operation* operation_;
};

}  // namespace

std::uint64_t& failed_seq() {
  thread_local std::uint64_t seq = kNoSeq;
  return seq;
}

Result<Operation*> prepare(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                           PlanId plan, Deadline deadline) {
  Session& session = *member->session;
  Submission& submission = session.submission();
  if (Error why = submission.failure_of(*member); why.code != ErrorCode::Ok) {
    session.tell_aborts();
    return why;
  }
  if (!session.waiting().wait_for_room(*member, deadline)) {
    submission.give_up(*member);
    session.tell_aborts();
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                 "too many operations of this communicator wait to be submitted: wait for some "
                 "tickets first");
  }
  Operation* operation = tickets().open();
  if (operation == nullptr) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota,
                 "too many tickets are open: every ticket must be waited for");
  }
  operation->member = member;
  operation->call = call;
  operation->plan = plan;
  operation->deadline = deadline;
  operation->cut = cut(call.send_count, call.element_bytes(), member->segment_limit_bytes);
  if (Status ready = take_memory(*operation, deadline); !ready) {
    give_back_memory(*operation, session.staging());
    tickets().spend(*operation, operation->ticket.load(std::memory_order_relaxed));
    tickets().recycle(*operation);
    // A refusal may be followed by another try. A call that lasted until its deadline has let its
    // peers begin the operation without this rank.
    if (ready.error().code == ErrorCode::DeadlineExceeded) {
      submission.give_up(*member);
      session.tell_aborts();
    }
    return std::move(ready).error();
  }
  return operation;
}

void start(Operation& operation, Deadline deadline, Teller teller) {
  operation.deadline = deadline;
  const std::shared_ptr<Member> member = operation.member;  // the session outlives the call
  Status submitted = member->session->submission().submit(operation);
  if (!submitted) refuse(operation, std::move(submitted).error());
  if (teller == Teller::Call) member->session->tell_aborts();
}

Status finish(Operation& operation, Teller teller) {
  const std::shared_ptr<Member> member = operation.member;  // the session outlives the call
  const std::uint64_t ticket = operation.ticket.load(std::memory_order_relaxed);
  Submission& submission = member->session->submission();
  const bool done = operation.done.load(std::memory_order_acquire) ||
                    member->session->waiting().wait_for(operation, operation.deadline.plus(kGuard));
  tickets().spend(operation, ticket);
  if (!done) submission.abandon(operation);
  if (teller == Teller::Call) member->session->tell_aborts();
  if (done) return outcome_of(operation);
  return error(
      ErrorCode::DeadlineExceeded, Reason::Timeout,
      "the daemon did not answer by the operation's deadline: it is stopped or overloaded");
}

Status test_ticket(std::uint64_t ticket, bool* in_progress) {
  *in_progress = false;
  Result<Claim> claim = Claim::take(ticket);
  if (!claim) return std::move(claim).error();
  Operation& operation = **claim;
  const std::shared_ptr<Member> member = operation.member;
  Submission& submission = member->session->submission();
  if (!operation.done.load(std::memory_order_acquire)) {
    submission.progress(kCopyingInTest);
    submission.check();
  }
  if (!operation.done.load(std::memory_order_acquire)) {
    if (operation.deadline.plus(kGuard).passed()) return finish(claim->spend(ticket));
    *in_progress = true;
    return {};
  }
  return outcome_of(claim->spend(ticket));
}

Status wait_ticket(std::uint64_t ticket, std::uint64_t timeout_ms) {
  Result<Claim> claim = Claim::take(ticket);
  if (!claim) return std::move(claim).error();
  Operation& operation = **claim;
  const std::shared_ptr<Member> member = operation.member;
  const Deadline own = operation.deadline.plus(kGuard);
  const Deadline asked = timeout_ms == 0 ? own : Deadline::after(Deadline::span_of(timeout_ms));
  const bool done = operation.done.load(std::memory_order_acquire) ||
                    member->session->waiting().wait_for(operation, own.earlier(asked));
  if (!done && own.passed()) return finish(claim->spend(ticket));  // which tells, too
  member->session->tell_aborts();
  if (done) return outcome_of(claim->spend(ticket));
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "ticket ", ticket,
               " was not done after ", timeout_ms, " ms; it stays valid");
}

}  // namespace arcomm::client
