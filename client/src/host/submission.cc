#include "client/src/host/submission.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "client/src/host/ticket_table.h"

namespace arcomm::client {
namespace {

std::uint64_t nanoseconds_of(Deadline::Clock::time_point when) {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

Error failure_in(const ring::Completion& completion) {
  char detail[sizeof(completion.detail) + 1] = {};
  std::memcpy(detail, completion.detail, sizeof(completion.detail));
  Error why{error_code_from(completion.code), reason_from(completion.reason), detail,
            completion.culprit_rank};
  if (why.message.empty()) why.message = text_of(why.reason);
  return why;
}

Error out_of_step() {
  return error(ErrorCode::FailedPrecondition, Reason::Revoked,
               "an earlier operation of this communicator failed part-way, so that its ranks no "
               "longer agree on what comes next: call arcCommRebuild on every rank");
}

}  // namespace

Submission::Submission(Parts parts)
    : segment_(std::move(parts.segment)),
      doorbell_fd_(std::move(parts.doorbell)),
      requests_doorbell_(segment_.control().requests.consumer_sleeps, doorbell_fd_.get()),
      completions_doorbell_(segment_.control().completions.consumer_sleeps),
      max_in_flight_(parts.max_in_flight == 0 ? segment_.slots()
                                              : std::min(parts.max_in_flight, segment_.slots())),
      descriptors_(parts.descriptors),
      staging_(parts.staging),
      tell_aborts_(std::move(parts.tell_aborts)),
      requests_(segment_.requests()),
      completions_(segment_.completions()),
      in_flight_(max_in_flight_),
      copying_({.segment_filled = [this](Operation& operation) { pump(*operation.member); },
                .copying_stopped = [this](Operation& operation) { settle(operation); }}) {
  for (std::uint32_t i = max_in_flight_; i-- > 0;) free_.push_back(i);
}

void Submission::add(Member& member) {
  const Lock lock(mutex_);
  if (loss_) set_failure(member, *loss_);
  members_.push_back(&member);
}

void Submission::remove(Member& member, const Error& why) {
  {
    const Lock lock(mutex_);
    set_failure(member, why);
    pump(member);
    std::erase(members_, &member);
    std::erase(aborts_due_, member.id);  // its caller tells the daemon that it leaves
  }
  wake_others();
}

std::uint32_t Submission::share() const {
  const auto members = static_cast<std::uint32_t>(std::max<std::size_t>(members_.size(), 1));
  return std::max(max_in_flight_ / members, 1u);
}

Status Submission::submit(Operation& operation) {
  if (operation.num_lanes > 0) StagedCopying::fill_first(operation);
  Lock lock(mutex_);
  Member& member = *operation.member;
  const auto state = static_cast<ring::SessionState>(
      segment_.control().session_state.load(std::memory_order_acquire));
  // A daemon that shuts down still answers, and knows which operations its peers have begun.
  if (state != ring::SessionState::Open) look_at_state();
  if (loss_) return *loss_;
  if (member.failure) return *member.failure;
  operation.submitted.store(true, std::memory_order_release);
  member.active.fetch_add(1, std::memory_order_relaxed);
  member.queue.push_back(&operation);
  member.queued.store(member.queue.size(), std::memory_order_relaxed);
  // The second lane is filled by whoever waits: an asynchronous call returns early.
  if (operation.num_lanes > 1) copying_.queue(operation);
  pump(member);
  return {};
}

// Lets the member's requests leave as far as they may.
void Submission::pump(Member& member) {
  while (!member.queue.empty()) {
    Operation& operation = *member.queue.front();
    if (operation.failed() || operation.next_submit == operation.cut.segments) {
      member.queue.pop_front();
      continue;
    }
    if (member.failure) {
      fail(operation, *member.failure, kNoSeq);
      continue;
    }
    if (operation.num_lanes > 0) {
      const StagingLane& lane = operation.lanes[operation.next_submit % operation.num_lanes];
      if (lane.state != StagingLane::State::Filled) break;  // whoever copies it comes back here
    }
    if (member.in_flight >= share() || free_.empty() || !push(operation, member)) break;
  }
  member.queued.store(member.queue.size(), std::memory_order_relaxed);
}

// False when the ring has no room.
bool Submission::push(Operation& operation, Member& member) {
  const auto now = Deadline::Clock::now();
  if (now >= operation.deadline.when()) {
    fail(operation,
         error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the deadline passed before segment ",
               operation.next_submit, " of ", operation.cut.segments, " could be submitted"),
         kNoSeq);
    return true;
  }
  const std::uint64_t segment = operation.next_submit;
  const std::uint32_t index = free_.back();
  InFlight& entry = in_flight_[index];
  if (++entry.generation == 0) entry.generation = 1;

  ring::WorkRequest request;
  const CollectiveCall& call = operation.call;
  request.root = static_cast<std::int16_t>(call.root);
  request.collective = static_cast<std::uint8_t>(call.collective);
  request.dtype = static_cast<std::uint8_t>(call.dtype);
  request.op = static_cast<std::uint8_t>(call.op);
  request.codec = static_cast<std::uint8_t>(call.codec);
  request.ticket = (std::uint64_t{entry.generation} << 32) | index;
  request.member = member.id.bits();
  request.seq = member.next_seq;
  // Only an AllReduce is cut so far, of which a part receives what it sends.
  request.send_count = request.recv_count = operation.cut.elements(segment);
  request.total_count = call.send_count;
  request.first_element = operation.cut.first_element(segment);
  request.plan = operation.plan.bits();
  request.timeout_ns = nanoseconds_of(operation.deadline.when()) - nanoseconds_of(now);
  request.submitted_ns = nanoseconds_of(now);
  StagingLane* lane =
      operation.num_lanes > 0 ? &operation.lanes[segment % operation.num_lanes] : nullptr;
  const std::uint64_t offset = operation.segment_offset(segment);
  if (!call.is_empty()) {
    request.send_buffer =
        operation.send.buffer ? operation.send.id.bits() : lane->slot->buffer.bits();
    request.send_offset_bytes = operation.send.buffer ? operation.send.offset_bytes + offset : 0;
    request.recv_buffer =
        operation.recv.buffer ? operation.recv.id.bits() : lane->slot->buffer.bits();
    request.recv_offset_bytes = operation.recv.buffer ? operation.recv.offset_bytes + offset : 0;
  }
  switch (requests_.push(request)) {
    case ring::Push::Full:
      return false;
    case ring::Push::Corrupt:
      lose(error(ErrorCode::Unavailable, Reason::Corrupt,
                 "the request ring's index is impossible: the daemon or this process wrote where "
                 "it must not"));
      return true;
    case ring::Push::Done:
      break;
  }
  requests_doorbell_.ring();
  free_.pop_back();
  entry.operation = &operation;
  entry.member = &member;
  entry.segment = segment;
  if (lane != nullptr) {
    lane->state = StagingLane::State::InFlight;
    lane->segment = segment;
  }
  if (segment == 0) operation.outcome.seq = member.next_seq;
  ++member.next_seq;
  ++member.in_flight;
  ++operation.outstanding;
  ++operation.next_submit;
  return true;
}

void Submission::reap() {
  bool completed = false;
  for (;;) {
    ring::Completion completion;
    const ring::Pop seen = completions_.pop(completion);
    if (seen == ring::Pop::Empty) break;
    if (seen == ring::Pop::Corrupt) {
      if (!loss_) {
        lose(error(ErrorCode::Unavailable, Reason::Corrupt,
                   "the completion ring is not in order: the daemon or this process wrote where it "
                   "must not"));
      }
      break;
    }
    complete(completion);
    completed = true;
  }
  if (!completed) return;
  for (Member* member : members_) {
    if (!member->queue.empty()) pump(*member);
  }
}

void Submission::complete(const ring::Completion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.ticket);
  const auto generation = static_cast<std::uint32_t>(completion.ticket >> 32);
  if (index >= in_flight_.size() || in_flight_[index].operation == nullptr ||
      in_flight_[index].generation != generation) {
    return;  // of an operation that this side has closed
  }
  if (reason_from(completion.reason) == Reason::DaemonLost && completion.code != 0) {
    // The daemon after the one that had this session: nothing else of it will be answered either.
    return lose(failure_in(completion));
  }
  const bool succeeded = completion.code == 0;
  if (succeeded && completion.stage == ring::Stage::Ordered) return;  // Done follows
  const InFlight entry = in_flight_[index];
  in_flight_[index].operation = nullptr;
  free_.push_back(index);
  --entry.member->in_flight;

  Operation& operation = *entry.operation;
  --operation.outstanding;
  if (!succeeded) {
    Error why = failure_in(completion);
    // The daemon read the request after the member had left: the caller knows why it left.
    if (entry.member->failure && why.reason == Reason::UnknownHandle) why = *entry.member->failure;
    fail(operation, why, completion.seq);
    return;
  }
  if (operation.num_lanes == 0) {
    ++operation.finished;
  } else {
    StagingLane& lane = operation.lanes[entry.segment % operation.num_lanes];
    lane.state = StagingLane::State::Reduced;
    copying_.queue(operation);
  }
  settle(operation);
}

void Submission::set_failure(Member& member, const Error& why) {
  if (member.failure) return;
  member.failure = why;
  member.failed.store(true, std::memory_order_release);
}

// The member takes nothing more, and its peers shall hear of it.
void Submission::revoke(Member& member, const Error& why) {
  if (member.failure) return;
  set_failure(member, why);
  aborts_due_.push_back(member.id);
  any_abort_due_.store(true, std::memory_order_release);
}

void Submission::give_up(Member& member) {
  {
    const Lock lock(mutex_);
    revoke(member, out_of_step());
    pump(member);
  }
  wake_others();
}

Error Submission::failure_of(const Member& member) const {
  if (!member.failed.load(std::memory_order_acquire)) {
    return {ErrorCode::Ok, Reason::None, "", -1};
  }
  const Lock lock(mutex_);
  return *member.failure;
}

std::vector<MemberId> Submission::take_aborts() {
  if (!any_abort_due_.load(std::memory_order_acquire)) return {};
  const Lock lock(mutex_);
  any_abort_due_.store(false, std::memory_order_relaxed);
  return std::exchange(aborts_due_, {});
}

void Submission::return_aborts(const std::vector<MemberId>& members) {
  const Lock lock(mutex_);
  for (const Member* member : members_) {  // those that left meanwhile need no abort
    if (std::find(members.begin(), members.end(), member->id) == members.end()) continue;
    aborts_due_.push_back(member->id);
    any_abort_due_.store(true, std::memory_order_release);
  }
}

void Submission::fail(Operation& operation, const Error& why, std::uint64_t seq) {
  if (!operation.failed()) {
    // One request that failed took its place in the sequence on every rank. One that never left did
    // not, and of several nobody can say how many each rank has submitted: going on could pair one
    // operation with another.
    const bool whole = operation.cut.segments == 1 && operation.next_submit == 1;
    if (!whole && !loss_) revoke(*operation.member, out_of_step());
    operation.outcome.error = why;
    if (seq != kNoSeq) operation.outcome.seq = seq;
  }
  settle(operation);
}

// Ends the operation once nothing of it is left anywhere.
void Submission::settle(Operation& operation) {
  if (operation.copying || operation.outstanding > 0) return;
  if (!operation.failed() && operation.finished < operation.cut.segments) return;
  if (operation.done.load(std::memory_order_relaxed)) return;
  Member& member = *operation.member;
  std::erase(member.queue, &operation);
  copying_.forget(operation);
  for (StagingLane& lane : operation.lanes) {
    if (lane.slot != nullptr) staging_.release(std::exchange(lane.slot, nullptr));
  }
  if (operation.send.buffer) operation.send.buffer->end_use();
  if (operation.recv.buffer) operation.recv.buffer->end_use();
  member.active.fetch_sub(1, std::memory_order_release);
  settled_ = true;
  if (operation.abandoned) {
    tickets().recycle(operation);
  } else {
    operation.done.store(true,
                         std::memory_order_release);  // pairs with the waiting thread's acquire
  }
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
  revoke(*member, error(ErrorCode::FailedPrecondition, Reason::Revoked,
                        "an earlier operation of this communicator was given up because the daemon "
                        "did not answer: call arcCommRebuild, or destroy the communicator"));
  fail(operation,
       error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the daemon did not answer in time"),
       kNoSeq);
  pump(*member);
  lock.unlock();
  wake_others();
}

}  // namespace arcomm::client
