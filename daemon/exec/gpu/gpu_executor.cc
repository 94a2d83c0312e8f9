#include "daemon/exec/gpu/gpu_executor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/gpu_steps.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// What was stopped ends in microseconds: a GPU that takes longer is asked whether it still works.
constexpr std::uint64_t kStopNs = 100'000'000;
// What was called at all host doorbells begins at once, unless the other doorbell was not written,
// or the daemon wrote over it when it opened it itself.
constexpr std::uint64_t kOpenAgainNs = 1'000'000;

// What the failpoint gpu.fault makes a kernel read.
const void* const kNobodysMemory = reinterpret_cast<const void*>(std::uintptr_t{4096});

constexpr std::uint64_t bit(std::uint32_t rank) {
  return std::uint64_t{1} << rank;
}

void record_algorithm(const Arrival& arrival, CudaAlgorithm algorithm) {
  for (Operation* operation : arrival.operations) {
    if (operation != nullptr) operation->record.algorithm = recorded(algorithm);
  }
}

Failure failure_of(const CudaOutcome& outcome, Rank rank, const Arrival& arrival) {
  const auto culprit = static_cast<Rank>(outcome.culprit);
  switch (static_cast<CudaOutcomeCode>(outcome.code)) {
    case CudaOutcomeCode::Timeout:
      return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, culprit,
                          "seq %" PRIu64 ": rank %d's kernel waited for rank %d until its deadline",
                          arrival.seq, rank, culprit);
    case CudaOutcomeCode::Aborted:
      return make_failure(ErrorCode::Aborted, Reason::Revoked, culprit,
                          "seq %" PRIu64 " was stopped on rank %d", arrival.seq, rank);
    case CudaOutcomeCode::EpochsUsedUp:
      return make_failure(ErrorCode::ResourceExhausted, Reason::None, rank,
                          "rank %d has used up its operations: make the communicator anew", rank);
    case CudaOutcomeCode::Done:
      break;
  }
  return make_failure(ErrorCode::Internal, Reason::Bug, rank,
                      "seq %" PRIu64 ": rank %d's kernel ended with the unknown code %" PRIu32,
                      arrival.seq, rank, outcome.code);
}

}  // namespace

Backend::Started GpuExecutor::start(Communicator& communicator, std::uint64_t now_ns,
                                    Failure& failure) {
  const Arrival& arrival = *communicator.board.head();
  for (int rank = 0; rank < communicator.ranks(); ++rank) {
    FlightRecord& record = arrival.operations[static_cast<std::size_t>(rank)]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = now_ns;
  }
  Run run{.communicator = &communicator, .failure = {}};
  run.waits = !begin(run, arrival);
  if (!run.waits && run.open == 0) {
    end(run);
    failure = run.failure;
    return Backend::Started::Ended;
  }
  // What was launched waits for a rank that was not: revoking stops it.
  if (!run.waits && run.failure.ok()) {
    const Status ahead = speculation_.speculate_after(communicator, arrival);
    if (!ahead) run.failure = Failure::from(ahead.error());
  }
  run.reported = !run.failure.ok();
  failure = run.failure;
  running_.push_back(run);
  return Backend::Started::Running;
}

bool GpuExecutor::begin(Run& run, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(*run.communicator);
  Speculation& speculation = group.speculation;
  const LaunchGate called = gate_of(arrival, group.members.size());
  const auto is_first = [&] {
    return !speculation.launched.empty() && speculation.launched.front().gate == called;
  };
  if ((speculation.state != Speculation::State::Waiting || !is_first()) &&
      !groups_.speculator.withdraw(group, 0))
    return false;
  if (speculation.state == Speculation::State::None) {
    const Result<bool> ready = start_over(group);
    if (ready && !*ready) return false;
    if (!ready) {
      run.failure = Failure::from(ready.error());
      return true;
    }
    if (!has_room(group, arrival)) return false;
    launch(run, arrival);
    return true;
  }
  if (!is_first()) {
    speculation.clear();
    run.failure =
        make_failure(ErrorCode::Aborted, Reason::Corrupt, kNoRank,
                     "seq %" PRIu64 ": the ranks' two doorbells name different plans", arrival.seq);
    return true;
  }
  if (speculation.state == Speculation::State::Waiting) groups_.speculator.count_hit();
  run.open = bit(static_cast<std::uint32_t>(group.members.size())) - 1;
  group.has_run = true;
  run.since_ns = now_ns();
  run.open_again_ns = run.since_ns + kOpenAgainNs;
  record_algorithm(arrival, speculation.launched.front().algorithm);
  group.running = called;
  speculation.pop();
  return true;
}

bool GpuExecutor::has_room(GpuGroup& group, const Arrival& arrival) const {
  const Plan plan = plan_of(group, arrival.signature);
  std::uint32_t blocks = 0;
  for (const Step& step : plan.steps())
    blocks = std::max(blocks, blocks_of(step, group, arrival.signature));
  if (groups_.room.enter(group.place, blocks)) return true;
  return groups_.speculator.make_room(group.place) && groups_.room.enter(group.place, blocks);
}

Result<bool> GpuExecutor::start_over(GpuGroup& group) const {
  if (!group.must_start_over()) return true;
  // An operation tells of its end a moment before it has left, and peers write into any scratch.
  if (!groups_.speculator.has_left(group)) return false;
  if (std::exchange(group.starts_over, true)) {
    group.starts_over = false;
    group.operations = 0;
    return true;
  }
  for (const GpuMember& member : group.members) {
    ARC_RETURN_IF_ERROR(member.launcher().start_over(
        member.queue, member.scratch.data(), static_cast<std::uint32_t>(group.members.size())));
  }
  return false;
}

void GpuExecutor::launch(Run& run, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(*run.communicator);
  ++group.operations;
  group.has_run = true;
  const std::size_t ranks = group.members.size();
  GpuCalls calls = calls_of(group, request_of(arrival, ranks, now_ns()), buffers_);
  if (faults_) std::ranges::fill(calls[0].send, kNobodysMemory);
  const Plan plan = plan_of(group, arrival.signature);
  Status launched;
  for (const Step& step : plan.steps()) {
    if (!arrival.signature.is_empty()) record_algorithm(arrival, algorithm_of(step));
    launched = run_step(step, group, group.next_parity(), std::span(calls).first(ranks), run.open);
    if (!launched) break;
  }
  if (launched) return;
  run.failure = Failure::from(launched.error());
  run.failure.culprit = static_cast<Rank>(std::countr_one(run.open));  // the first that was not
  if (run.failure.culprit >= static_cast<Rank>(ranks)) run.failure.culprit = kNoRank;
  log::error("an operation of {} bytes could not be launched: {}", arrival.signature.send_bytes(),
             launched.error().message);
}

void GpuExecutor::look_at(Run& run) {
  GpuGroup& group = *gpus_of(*run.communicator);
  const Arrival& arrival = *run.communicator->board.head();
  for (std::uint32_t rank = 0; rank < group.members.size(); ++rank) {
    if ((run.open & bit(rank)) == 0) continue;
    RankCompletion& words = group.members[rank].words();
    // Both acquire what the kernel wrote before: pairs with its release at system scope.
    // The next one may have ended already, where that was launched speculatively.
    const Done done = done_from(__atomic_load_n(&words.done, __ATOMIC_ACQUIRE));
    if (reached(done.number, static_cast<std::uint32_t>(arrival.operations[rank]->ticket))) {
      run.open &= ~bit(rank);
      continue;
    }
    const std::uint32_t code = __atomic_load_n(&words.outcome.code, __ATOMIC_ACQUIRE);
    if (code == 0) continue;
    run.open &= ~bit(rank);
    if (!run.failure.ok()) continue;
    run.failure =
        arrival.failure.ok()
            ? failure_of({code, __atomic_load_n(&words.outcome.culprit, __ATOMIC_RELAXED)},
                         static_cast<Rank>(rank), arrival)
            : arrival.failure;
  }
}

bool GpuExecutor::collect(std::vector<Outcome>& outcomes) {
  const std::size_t before = outcomes.size();
  for (std::size_t i = 0; i < running_.size();) {
    Run& run = running_[i];
    if (run.waits && !go_on(run)) {
      ++i;
      continue;
    }
    look_at(run);
    if (run.stopped_ns != 0) give_up_broken(run);
    if (run.open == 0) {
      end(run);
      outcomes.push_back({.communicator = run.communicator, .failure = run.failure});
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    open_again(run);
    if (!run.failure.ok() && !std::exchange(run.reported, true))
      outcomes.push_back(
          {.communicator = run.communicator, .failure = run.failure, .ended = false});
    ++i;
  }
  return outcomes.size() != before;
}

void GpuExecutor::end(const Run& run) {
  GpuGroup& group = *gpus_of(*run.communicator);
  group.running = {};
  group.has_run = false;
  groups_.room.give_up_turn(group.place);
  if (!group.is_in_queues()) groups_.room.leave(group.place);
}

bool GpuExecutor::go_on(Run& run) {
  Communicator& communicator = *run.communicator;
  const Arrival& arrival = *communicator.board.head();
  if (!arrival.failure.ok()) {  // revoked meanwhile: nothing of it was launched
    run.failure = arrival.failure;
    run.waits = false;
    return true;
  }
  if (!begin(run, arrival)) return false;
  run.waits = false;
  if (!run.failure.ok() || run.open == 0) return true;
  const Status ahead = speculation_.speculate_after(communicator, arrival);
  if (!ahead) run.failure = Failure::from(ahead.error());
  return true;
}

void GpuExecutor::open_again(Run& run) {
  if (run.open_again_ns == 0) return;
  const std::uint64_t now = now_ns();
  if (now < run.open_again_ns) return;
  GpuGroup& group = *gpus_of(*run.communicator);
  if (run.stopped_ns == 0 && groups_.speculator.has_left(group)) {
    look_at(run);  // now what was told is all that will be
    if (run.open == bit(static_cast<std::uint32_t>(group.members.size())) - 1)
      return launch_again(run);
  }
  if (run.doubted) groups_.speculator.withdraw(group, 0);  // all or nothing: what runs goes on
  groups_.speculator.open(group, group.running);
  run.doubted = true;
  run.open_again_ns = now + 2 * (kOpenAgainNs + now - run.since_ns);
}

void GpuExecutor::launch_again(Run& run) {
  GpuGroup& group = *gpus_of(*run.communicator);
  const Arrival& arrival = *run.communicator->board.head();
  run.open = 0;
  run.open_again_ns = 0;
  group.running = {};
  group.speculation.clear();  // its kernels have left too, and cannot have run before this one
  if (!arrival.failure.ok()) {
    run.failure = arrival.failure;
    return;
  }
  log::warn("a gate gave up before its call came, and the operation is launched again");
  launch(run, arrival);
}

void GpuExecutor::give_up_broken(Run& run) {
  const std::uint64_t now = now_ns();
  if (now < run.stopped_ns + kStopNs) return;
  run.stopped_ns = now;
  GpuGroup& group = *gpus_of(*run.communicator);
  for (std::uint32_t rank = 0; rank < group.members.size(); ++rank) {
    if ((run.open & bit(rank)) == 0) continue;
    const Status health = group.members[rank].launcher().health();
    if (health) continue;
    // Nothing runs there any more, and nothing will.
    run.open &= ~bit(rank);
    run.failure = Failure::from(health.error());
    run.failure.culprit = static_cast<Rank>(rank);
    log::error("rank {}'s GPU has failed: {}", rank, health.error().message);
  }
  if (run.open == 0 || !groups_.speculator.has_left(group)) return;
  // A rank whose part did not happen tells nothing.
  look_at(run);
  run.open = 0;
  const Arrival& arrival = *run.communicator->board.head();
  if (!run.failure.ok()) return;
  run.failure = !arrival.failure.ok() ? arrival.failure
                                      : make_failure(ErrorCode::Aborted, Reason::Revoked, kNoRank,
                                                     "seq %" PRIu64 " was stopped", arrival.seq);
}

void GpuExecutor::stop(const Communicator& communicator) {
  for (Run& run : running_) {
    if (run.communicator != &communicator || run.stopped_ns != 0) continue;
    run.stopped_ns = now_ns();
    for (GpuMember& member : gpus_of(communicator)->members) {
      const Status aborted = member.launcher().abort(member.scratch.data());
      if (!aborted)
        log::error("rank {}'s kernel cannot be stopped: {}", member.rank, aborted.error().message);
    }
  }
}

}  // namespace arcomm
