#include "daemon/exec/gpu/measure/timed_launches.h"

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/gpu_steps.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/plan/tuning/gpu_tuning_table.h"

namespace arcomm {
namespace {

// A kernel gives up by itself before the host gives it up.
constexpr std::uint64_t kKernelTimeoutNs = 1'000'000'000;
constexpr int kPath = static_cast<int>(LaunchPath::Launched);

}  // namespace

InStreamShape TimedLaunches::shape_in_stream(std::uint64_t bytes) const {
  return group_.launches.find({.bytes = bytes, .dtype = kTrialType, .op = ReduceOp::Sum}).in_stream;
}

Result<std::uint64_t> TimedLaunches::launch(const GpuMeasurement& what, std::uint32_t times) {
  what_ = what;
  gate_ = {.number = number_ + 1, .plans = {}};
  const std::uint64_t launching_ns = now_ns();
  const Status launched = launch_all(times);
  const Result<std::uint64_t> opened = open();  // in any case: nothing may go on waiting
  ARC_RETURN_IF_ERROR(launched);
  if (!opened) return opened.error();
  return can_wait() ? *opened : launching_ns;  // else they started at once
}

// What is many entries of a queue could fill it, and wait there for the doorbell that this very
// thread opens when all has been launched.
bool TimedLaunches::can_wait() const {
  return !(what_.algorithm && entry_of(*what_.algorithm).launches_all_ranks) &&
         std::all_of(group_.members.begin(), group_.members.end(),
                     [](const GpuMember& member) { return member.queue != 0; });
}

Status TimedLaunches::launch_all(std::uint32_t times) {
  if (can_wait()) {  // else it starts at once
    for (const GpuMember& member : group_.members) {
      std::uint64_t* doorbell = &member.device_mailbox()->paths[kPath].doorbell;
      ARC_RETURN_IF_ERROR(
          member.launcher().wait_for(member.queue, doorbell, gate_.word(member.rank)));
    }
  }
  if (!what_.algorithm) return launch_in_stream(times);
  std::vector<CudaAllReduce> calls;
  for (const GpuMember& member : group_.members) calls.push_back(call_of(member, what_.bytes));
  const Step step = step_for(*what_.algorithm);
  for (std::uint32_t time = 0; time < times; ++time) {
    ++number_;
    for (CudaAllReduce& call : calls) call.done_word = to_word(Done{.number = number_});
    std::uint64_t launched = 0;
    ARC_RETURN_IF_ERROR(run_step(step, group_, 0, calls, launched));
  }
  return {};
}

Status TimedLaunches::launch_in_stream(std::uint32_t times) {
  const InStreamShape shape = shape_in_stream(what_.bytes);
  for (std::uint32_t time = 0; time < times; ++time) {
    ++number_;  // its own the kernels count; the next doorbell must be another one
    for (const GpuMember& member : group_.members) {
      ARC_RETURN_IF_ERROR(member.launcher().launch_in_stream(
          member.queue, shape, kTrialType, ReduceOp::Sum, in_stream_call_of(member, what_.bytes)));
    }
  }
  return {};
}

Result<std::uint64_t> TimedLaunches::open() {
  std::uint64_t begun = 0;
  Status opened;
  for (const GpuMember& member : group_.members) {
    begun = now_ns();
    std::uint64_t* doorbell = &member.device_mailbox()->paths[kPath].doorbell;
    Status stored = member.launcher().store(doorbell, gate_.word(member.rank));
    if (opened) opened = std::move(stored);
  }
  if (!opened) return opened.error();
  return begun;
}

CudaAllReduce TimedLaunches::call_of(const GpuMember& member, std::uint64_t bytes) const {
  const int ordinal = member.engine->ordinal();
  RankCompletion& words = member.words();
  CudaAllReduce call;
  call.done = &member.device_mailbox()->paths[kPath].done;
  call.host_done = &words.done;
  call.host_outcome = &words.outcome;
  call.count = bytes / size_of(kTrialType);
  call.timeout_ns = kKernelTimeoutNs;
  call.rank = static_cast<std::uint32_t>(member.rank);
  call.ranks = ranks();
  call.dtype = kTrialType;
  call.most_blocks = group_.most_blocks;
  for (std::uint32_t peer = 0; peer < call.ranks; ++peer) {
    call.scratch[peer] = group_.members[peer].scratch.data();
    call.send[peer] = buffers_[peer].send.data_on(ordinal);
    call.recv[peer] = buffers_[peer].recv.data_on(ordinal);
  }
  return call;
}

InStreamCall TimedLaunches::in_stream_call_of(const GpuMember& member, std::uint64_t bytes) const {
  const auto rank = static_cast<std::size_t>(member.rank);
  InStreamCall call;
  call.send = buffers_[rank].send.data();
  call.recv = buffers_[rank].recv.data();
  call.mailbox = member.device_mailbox();
  call.doorbells = &member.words().doorbells;
  for (std::uint32_t peer = 0; peer < ranks(); ++peer)
    call.exchange[peer] = reinterpret_cast<InStreamControl*>(group_.members[peer].exchange.data());
  call.timeout_ns = kKernelTimeoutNs;
  call.count = static_cast<std::uint32_t>(bytes / size_of(kTrialType));
  call.rank = static_cast<std::uint32_t>(member.rank);
  call.ranks = ranks();
  return call;
}

Result<bool> TimedLaunches::has_ended(const GpuMember& member) const {
  // Both acquire what the kernel wrote before: pairs with its release at system scope.
  const RankCompletion& words = member.words();
  if (reached(done_from(__atomic_load_n(&words.done, __ATOMIC_ACQUIRE)).number, number_))
    return true;
  const std::uint32_t code = __atomic_load_n(&words.outcome.code, __ATOMIC_ACQUIRE);
  if (code == 0) return false;
  return error(ErrorCode::Internal, Reason::None, "rank ", member.rank, " ended with outcome ",
               code, ", having waited for rank ",
               __atomic_load_n(&words.outcome.culprit, __ATOMIC_RELAXED));
}

// Such an operation tells nobody of its end but its stream.
Result<bool> TimedLaunches::has_ended_in_stream(const GpuMember& member) const {
  Result<bool> idle = member.launcher().idle(member.queue);
  const std::uint64_t failed =
      __atomic_load_n(&member.words().doorbells.in_stream_failed, __ATOMIC_ACQUIRE);
  if (failed == 0) return idle;
  const Done why = done_from(failed);
  return error(ErrorCode::Internal, Reason::None, "rank ", member.rank, " failed (",
               text_of(reason_from(why.reason)), "), having waited for rank ", why.culprit_rank);
}

Result<bool> TimedLaunches::have_ended() const {
  for (const GpuMember& member : group_.members) {
    Result<bool> ended = what_.algorithm ? has_ended(member) : has_ended_in_stream(member);
    if (!ended || !*ended) return ended;
  }
  return true;
}

}  // namespace arcomm
