// What a worker does for the GPUs that it serves: doorbells in place of rings, mailboxes in place
// of completions, and the resident path, whose operations pass it by.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

bool Worker::poll_doorbells() {
  bool found = false;
  std::uint64_t now = 0;  // read once for a sweep, and only if there is something
  // Nothing here frees a communicator: who broke the protocol goes at the end of the sweep.
  for (GpuGroup* group : gpus_->groups()) {
    for (GpuMember& member : group->members) {
      if (group->closed) break;
      if (!member.active) continue;
      const Doorbell doorbell = member.doorbells.launched();
      if (doorbell.number == member.taken) continue;
      if (now == 0) now = now_ns();
      take_doorbell(*group, member, doorbell, now);
      found = true;
    }
  }
  if (found) gpus_->moved(now);
  if (!lost_.empty()) quarantine_lost();
  return found;
}

void Worker::catch_up() {
  if (gpus_ == nullptr) return;
  // What was launched speculatively may have ended before its call was seen here, and be followed
  // by one more.
  for (std::size_t turn = 0; turn < 2 + Speculation::kMost && poll_doorbells(); ++turn) {
    execute();
    reap();
    settle();
  }
}

void Worker::take_doorbell(GpuGroup& group, GpuMember& member, Doorbell doorbell,
                           std::uint64_t now_ns) {
  Session* session = find(member.session);
  if (session == nullptr || !session->readable()) {
    member.active = false;
    return;
  }
  // What was launched speculatively ends without the worker: later calls may have come to the
  // doorbell before that one was seen there.
  if (doorbell.number - member.taken - 2 < Speculation::kMost) {
    for (const SpeculativeLaunch& speculative : group.speculation.launched) {
      if (speculative.gate.number == member.taken + 1)
        doorbell = doorbell_from(speculative.gate.word(member.rank));
    }
  }
  if (doorbell.number != member.taken + 1) {
    member.active = false;
    return lose(*session, "the number at a doorbell is not the next one");
  }
  member.taken = doorbell.number;
  const Admitted admitted = admission_.admit_doorbell(*session, member.id, doorbell, now_ns);
  if (admitted.verdict == Admitted::Verdict::Done) return accept(*session, *admitted.operation);
  completions_.refuse_doorbell(*session, admitted, now_ns);
  tell_refused(admitted, now_ns);
  // Its client waits in a stream, and there is one way to tell it.
  Failure told = admitted.failure;
  told.culprit = member.rank;
  if (admitted.member != nullptr) communicators_.revoke(*admitted.member->communicator, told);
}

void Worker::tend_gpus(std::uint64_t now_ns) {
  gpus_->clear_the_way(now_ns);
  const GpuPlane::SpeculationCounts seen = std::exchange(gpus_->speculation_counts, {});
  if (seen.hits != 0) parts_.metrics.speculative_hits.add(seen.hits);
  if (seen.misses != 0) parts_.metrics.speculative_misses.add(seen.misses);
  const std::uint64_t done_before = gpus_->resident_done();
  const std::vector<GpuPlane::ResidentFailure>& failures = gpus_->tend(now_ns);
  if (gpus_->resident_done() != done_before)
    parts_.metrics.operations[ErrorCode::Ok].add(gpus_->resident_done() - done_before);
  for (const GpuPlane::ResidentFailure& failed : failures) {
    Communicator& communicator = *failed.communicator;
    if (!communicator.ready()) continue;
    const ErrorCode code = error_code_from(failed.how.code);
    Reason reason = reason_from(failed.how.reason);
    const auto culprit = static_cast<Rank>(failed.how.culprit_rank);
    Communicator* const crossed =
        failed.in_stream && reason == Reason::Timeout
            ? gpus_->find_crossing(*gpus_of(communicator), failed.rank, now_ns)
            : nullptr;
    if (crossed != nullptr) reason = Reason::Crossed;
    const char* const path = failed.in_stream ? "in_stream" : "resident";
    parts_.metrics.operations[code].add();
    FlightRecord record{.unique_id_prefix = prefix_of(communicator.unique_id),
                        .epoch = communicator.epoch,
                        .seq = failed.how.number,
                        .done_ns = now_ns,
                        .rank = failed.rank,
                        .culprit = culprit,
                        .pid = communicator.seat(failed.rank).pid,
                        .algorithm = failed.in_stream ? kInStreamKernel : kResidentKernel,
                        .code = code,
                        .reason = reason};
    parts_.recorder.write(record);
    ++communicator.operations_failed;
    if (crossed != nullptr) {
      communicators_.revoke_crossed(communicator, *crossed, culprit);
      continue;
    }
    if (code == ErrorCode::Internal && !failed.in_stream) {
      communicators_.revoke(
          communicator,
          make_failure(code, reason, failed.rank,
                       "rank %d's GPU does not answer: see the daemon's log", failed.rank));
      continue;
    }
    communicators_.revoke(
        communicator,
        reason == Reason::Timeout
            ? make_failure(code, reason, culprit,
                           "%s operation %" PRIu32 ": rank %d waited for rank %d until its "
                           "deadline",
                           path, failed.how.number, failed.rank, culprit)
            : make_failure(code, reason, culprit, "%s operation %" PRIu32 " of rank %d: %s", path,
                           failed.how.number, failed.rank, text_of(reason).data()));
  }
}

void Worker::end_by_doorbell(MemberId id, const Failure& failure) {
  const Member* member = communicators_.find(id);
  if (member == nullptr) return;
  // After a leave in good order what all had called still runs: the plane tells the rest.
  Communicator& communicator = *member->communicator;
  if (communicator.ended.ok()) communicators_.revoke(communicator, failure);
}

void Worker::leave_gpu(Communicator& communicator, Rank rank) {
  retire_from_gpu(communicator, rank);
  const Failure left = make_failure(ErrorCode::Aborted, Reason::RemoteAborted, rank, "%s", "");
  gpus_->end_after_leave(*gpus_of(communicator), rank, done_of(left));
}

void Worker::retire_from_gpu(Communicator& communicator, Rank rank) {
  if (const Status retired = gpus_->retire(*gpus_of(communicator), rank); !retired) {
    log::error("rank {} of communicator {} may still be at work: {}", rank,
               short_name(communicator.unique_id), retired.error().to_string());
  }
}

Result<BufferId> Worker::add_gpu_buffer(Session& session, const BufferSpec& seed) {
  if (!seed.memory && !seed.handle && seed.chunks.empty()) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "GPU memory is registered by a descriptor, a CUDA IPC handle or its pieces: none "
                 "of these came");
  }
  Result<std::size_t> gpu = gpus_->find_gpu(seed.device);
  if (!gpu) return std::move(gpu).error();
  Result<Memory> memory = gpus_->import(*gpu, seed);
  if (!memory) return std::move(memory).error();
  session.registered_bytes += memory->bytes();
  const BufferId buffer =
      buffers_.add(session.id(), std::move(memory).value(), static_cast<int>(*gpu));
  session.buffers.push_back(buffer);
  return buffer;
}

Result<AllocatedBuffer> Worker::allocate_buffer(SessionId id, const std::string& device,
                                                std::uint64_t bytes) {
  if (gpus_ == nullptr) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "this device's memory is the client's own: nothing is allocated here");
  }
  Result<Session*> session = need(id);
  if (!session) return std::move(session).error();
  if (bytes == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "0 bytes cannot be allocated");
  }
  Result<std::size_t> gpu = gpus_->find_gpu(device);
  if (!gpu) return std::move(gpu).error();
  bench_.reset();  // clients come first
  Result<Memory> memory = gpus_->allocate(*gpu, bytes);
  if (!memory) return std::move(memory).error();
  Result<UniqueFd> descriptor = memory->export_fd();
  if (!descriptor) {
    gpus_->release_later(std::move(memory).value());
    return std::move(descriptor).error();
  }
  const std::uint64_t length = memory->bytes();
  const BufferId buffer = buffers_.add(id, std::move(memory).value(), static_cast<int>(*gpu));
  (*session)->buffers.push_back(buffer);
  (*session)->registered_bytes += length;
  return AllocatedBuffer{buffer, std::move(descriptor).value(), length};
}

void Worker::let_go(RemovedBuffer removed) {
  if (removed.memory) gpus_->release_later(std::move(removed.memory));
}

Result<MailboxDescriptors> Worker::export_mailbox(SessionId session, MemberId id) const {
  if (gpus_ == nullptr) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "this device has no mailboxes");
  }
  Result<Member*> member = need_member(session, id);
  if (!member) return std::move(member).error();
  return gpus_->export_mailbox(*gpus_of(*(*member)->communicator), (*member)->rank);
}

Status Worker::check_gpu_plan(const PersistentPlan& plan, const CheckedRange& send,
                              const CheckedRange& recv) const {
  if (plans_.next_id().index >= kMaxDevicePlans) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, kMaxDevicePlans,
                 " plans exist, the most that GPUs can tell apart: destroy one first");
  }
  const Member* member = communicators_.find(plan.member);
  const auto home = static_cast<int>(gpus_of(*member->communicator)->member(member->rank).gpu);
  for (const CheckedRange* range : {&send, &recv}) {
    if (range->buffer == nullptr || range->buffer->gpu == home) continue;
    return error(ErrorCode::InvalidArgument, Reason::BadValue, range == &send ? "send" : "recv",
                 " lies on another GPU than rank ", member->rank,
                 " of the communicator: use memory of that rank's GPU");
  }
  return {};
}

Status Worker::bind_to_gpu(PlanId id, PersistentPlan& plan) {
  const Member* found = communicators_.find(plan.member);
  GpuGroup& group = *gpus_of(*found->communicator);
  GpuMember& member = group.member(found->rank);
  const AdmissionLimits& limits = admission_.limits;
  if (plan.timeout_ns == 0) plan.timeout_ns = limits.default_timeout_ns;
  plan.timeout_ns = std::min(plan.timeout_ns, limits.max_timeout_ns);
  const Launch launch = group.launches.find({.bytes = plan.signature.bytes(),
                                             .dtype = plan.signature.dtype,
                                             .op = plan.signature.op,
                                             .codec = plan.signature.codec});
  if (launch.path != LaunchPath::Resident) return {};
  ARC_RETURN_IF_ERROR(gpus_->set_plan(id, member, plan));
  plan.resident_on = static_cast<int>(member.gpu);
  member.patience_ns = std::max(member.patience_ns, plan.timeout_ns);
  return {};
}

Status Worker::unbind_from_gpu(PlanId id, const PersistentPlan& plan) {
  const Member* member = communicators_.find(plan.member);
  GpuGroup* group = member == nullptr ? nullptr : gpus_of(*member->communicator);
  const auto is_of_plan = [&](const SpeculativeLaunch& speculative) {
    return speculative.gate.plans[static_cast<std::size_t>(member->rank)] == id;
  };
  if (group != nullptr && std::any_of(group->speculation.launched.begin(),
                                      group->speculation.launched.end(), is_of_plan))
    gpus_->withdraw(*group, kMomentNs);
  if (plan.resident_on < 0) return {};
  return gpus_->clear_plan(id, plan, group, member == nullptr ? kNoRank : member->rank);
}

void Worker::add_gpu_view(const Communicator& communicator, CommunicatorSnapshot& shot) const {
  GpuGroup* group = gpus_of(communicator);
  if (group == nullptr || group->members.empty()) return;
  shot.launches = group->launches;
  shot.why_not_in_stream = group->why_not_in_stream;
  std::uint32_t most = 0, least = ~std::uint32_t{0};
  for (const GpuMember& member : group->members) {
    shot.ranks[static_cast<std::size_t>(member.rank)].next_seq +=
        member.posted + member.in_stream_begun;
    most = std::max(most, member.posted + member.in_stream_begun);
    least = std::min(least, member.done + member.in_stream_begun);
  }
  shot.operations_done += least;
  if (!shot.diagnosis.empty() || group->closed) return;
  for (const GpuMember& member : group->members) {
    const std::uint32_t called = member.posted + member.in_stream_begun;
    if (called == most) continue;
    shot.diagnosis += (shot.diagnosis.empty() ? "" : "; ") + std::string("rank ") +
                      std::to_string(member.rank) + " has called " + std::to_string(called) +
                      " small operations, others " + std::to_string(most);
  }
}

Status Worker::may_measure() {
  if (gpus_ == nullptr) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "this worker serves no GPU");
  }
  if (admission_.limits.draining)
    return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon stops");
  if (gpus_->groups().empty()) return {};
  bench_.reset();
  return error(ErrorCode::FailedPrecondition, Reason::None, gpus_->groups().size(),
               " communicators are on the GPUs, and measuring would hold them up: tune when none "
               "is (arctl comms lists them)");
}

Result<std::uint64_t> Worker::begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes) {
  bench_.reset();
  ARC_RETURN_IF_ERROR(may_measure());
  Result<std::unique_ptr<GpuBench>> bench =
      GpuBench::create(*gpus_, parts_.gpus, ranks, room_bytes);
  if (!bench) return std::move(bench).error();
  bench_ = std::move(bench).value();
  return bench_->room_bytes();
}

Result<double> Worker::measure(GpuMeasurement what) {
  ARC_RETURN_IF_ERROR(may_measure());
  if (bench_ == nullptr)
    return error(ErrorCode::FailedPrecondition, Reason::None,
                 "nobody has begun to measure, or a client came and took the memory: tune again");
  return bench_->measure(what);
}

bool Worker::lost() const {
  return gpus_ != nullptr && gpus_->lost();
}

}  // namespace arcomm
