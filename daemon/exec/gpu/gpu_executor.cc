#include "daemon/exec/gpu/gpu_executor.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>

#include "daemon/exec/clock.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/session/session.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kDrainNs = 5'000'000'000;
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

Gate GpuExecutor::gate_of(const Arrival& arrival, std::size_t ranks) {
  Gate gate{.number = static_cast<std::uint32_t>(arrival.operations[0]->ticket)};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Operation& operation = *arrival.operations[rank];
    gate.plans[rank] = operation.plan;
    if (static_cast<std::uint32_t>(operation.ticket) != gate.number) gate.number = 0;
  }
  return gate;
}

void GpuExecutor::use_settings(const Settings& settings) {
  const Result<std::optional<CudaAlgorithm>> forced = forced_algorithm(settings.gpu.algorithm);
  if (!forced) return log::error("{}", forced.error().message);  // the daemon has looked before
  forced_ = *forced;
}

CudaAlgorithm GpuExecutor::choose_for(const GpuGroup& group, const Signature& signature) const {
  const auto ranks = static_cast<std::uint32_t>(group.members.size());
  const std::uint64_t bytes = signature.bytes();
  const CudaAlgorithm chosen = choose(tuning_->gpu, forced_, ranks, bytes);
  return algorithm_among(group.abilities, chosen, bytes);
}

bool GpuExecutor::start_next() {
  Communicator* communicator = communicators_.next_ready();
  if (communicator == nullptr) return false;
  start(*communicator);
  return true;
}

void GpuExecutor::start(Communicator& communicator) {
  Arrival& arrival = *communicator.board.head();
  const std::uint64_t launched_ns = now_ns();
  if (arrival.failure.ok() && arrival.deadline_ns <= launched_ns)
    communicators_.expire(communicator, launched_ns);
  if (!arrival.failure.ok()) return communicators_.completed(communicator, arrival.failure);
  for (int rank = 0; rank < communicator.ranks(); ++rank) {
    FlightRecord& record = arrival.operations[static_cast<std::size_t>(rank)]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = launched_ns;
  }
  Run run{.communicator = &communicator, .failure = {}};
  run.waits = !begin(run, arrival);
  if (run.waits) return running_.push_back(run);
  if (run.open == 0) return communicators_.completed(communicator, run.failure);
  running_.push_back(run);
  // What was launched waits for a rank that was not: revoking stops it.
  if (!run.failure.ok()) return communicators_.revoke(communicator, run.failure);
  speculate_next(communicator, arrival);
}

bool GpuExecutor::begin(Run& run, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(*run.communicator);
  Speculation& speculation = group.speculation;
  const Gate called = gate_of(arrival, group.members.size());
  const auto is_first = [&] {
    return !speculation.launched.empty() && speculation.launched.front().gate == called;
  };
  if ((speculation.state != Speculation::State::Waiting || !is_first()) &&
      !plane_.withdraw(group, 0))
    return false;
  if (speculation.state == Speculation::State::None) {
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
  if (speculation.state == Speculation::State::Waiting) ++plane_.speculation_counts.hits;
  run.open = bit(static_cast<std::uint32_t>(group.members.size())) - 1;
  run.since_ns = now_ns();
  run.open_again_ns = run.since_ns + kOpenAgainNs;
  record_algorithm(arrival, speculation.launched.front().algorithm);
  group.running = called;
  speculation.pop();
  return true;
}

// All ranks' memory by the addresses at which the rank's GPU finds it: see Memory::data_on.
CudaAllReduce GpuExecutor::call_of(GpuGroup& group, Rank rank, const Signature& signature,
                                   const Parts& parts, std::uint32_t number,
                                   std::uint64_t timeout_ns) {
  GpuMember& own = group.member(rank);
  const int ordinal = gpus_[own.gpu]->ordinal();
  RankCompletion& words = plane_.words(own);
  CudaAllReduce call;
  call.done = &own.device_mailbox()->paths[static_cast<int>(LaunchPath::Launched)].done;
  call.done_word = to_word(Done{.number = number});
  call.host_done = &words.done;
  call.host_outcome = &words.outcome;
  call.count = signature.count;
  call.timeout_ns = timeout_ns;
  call.rank = static_cast<std::uint32_t>(rank);
  call.ranks = static_cast<std::uint32_t>(group.members.size());
  call.dtype = signature.dtype;
  call.op = signature.op;
  for (std::uint32_t peer = 0; peer < call.ranks; ++peer) {
    call.scratch[peer] = group.members[peer].scratch.data();
    if (call.count == 0) continue;
    const Part& part = parts[peer];
    // Operations and plans hold their buffers.
    const Buffer& send = *buffers_.find(part.session, part.send_buffer);
    const Buffer& recv = *buffers_.find(part.session, part.recv_buffer);
    call.send[peer] = send.base_on(ordinal) + (part.send - send.base());
    call.recv[peer] = recv.base_on(ordinal) + (part.recv - recv.base());
  }
  return call;
}

void GpuExecutor::launch(Run& run, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(*run.communicator);
  const auto ranks = static_cast<std::uint32_t>(group.members.size());
  Parts parts;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Operation& operation = *arrival.operations[rank];
    parts[rank] = {operation.session->id(), operation.send_buffer, operation.recv_buffer,
                   operation.send, operation.recv};
  }
  const std::uint64_t now = now_ns();
  const std::uint64_t timeout_ns = arrival.deadline_ns > now ? arrival.deadline_ns - now : 1;
  const CudaAlgorithm algorithm = choose_for(group, arrival.signature);
  if (arrival.signature.count != 0) record_algorithm(arrival, algorithm);
  std::array<CudaAllReduce, kMaxGpuRanks> calls;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto number = static_cast<std::uint32_t>(arrival.operations[rank]->ticket);
    calls[rank] =
        call_of(group, static_cast<Rank>(rank), arrival.signature, parts, number, timeout_ns);
  }
  if (faults_) std::ranges::fill(calls[0].send, kNobodysMemory);
  const Status launched =
      plane_.launch(group, group.next_parity(), algorithm, std::span(calls).first(ranks), run.open);
  if (launched) return;
  run.failure = Failure::from(launched.error());
  run.failure.culprit = static_cast<Rank>(std::countr_one(run.open));  // the first that was not
  if (run.failure.culprit >= static_cast<Rank>(ranks)) run.failure.culprit = kNoRank;
  log::error("an operation of {} bytes could not be launched: {}", arrival.signature.bytes(),
             launched.error().message);
}

void GpuExecutor::look_at(Run& run) {
  GpuGroup& group = *gpus_of(*run.communicator);
  const Arrival& arrival = *run.communicator->board.head();
  for (std::uint32_t rank = 0; rank < group.members.size(); ++rank) {
    if ((run.open & bit(rank)) == 0) continue;
    RankCompletion& words = plane_.words(group.members[rank]);
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

bool GpuExecutor::reap() {
  bool found = false;
  for (std::size_t i = 0; i < running_.size();) {
    if (running_[i].waits && !go_on(i)) {
      ++i;
      continue;
    }
    Run& run = running_[i];
    look_at(run);
    if (run.stopped_ns != 0) give_up_broken(run);
    if (run.open == 0) {
      const Run ended = run;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      gpus_of(*ended.communicator)->running = {};
      communicators_.completed(*ended.communicator, ended.failure);
      found = true;
      continue;
    }
    open_again(run);
    // The others' parts may wait for the one that failed.
    if (!run.failure.ok() && run.stopped_ns == 0) {
      Communicator& communicator = *run.communicator;
      const Failure failure = run.failure;
      communicators_.revoke(communicator, failure);
      stop(communicator);  // where it had been revoked already
      found = true;
    }
    ++i;
  }
  return found;
}

bool GpuExecutor::go_on(std::size_t index) {
  Run& run = running_[index];
  Communicator& communicator = *run.communicator;
  const Arrival& arrival = *communicator.board.head();
  if (!arrival.failure.ok()) {  // revoked meanwhile: nothing of it was launched
    run.failure = arrival.failure;
    run.waits = false;
    return true;
  }
  if (!begin(run, arrival)) return false;
  run.waits = false;
  if (run.failure.ok() && run.open != 0) speculate_next(communicator, arrival);
  return true;
}

void GpuExecutor::open_again(Run& run) {
  if (run.open_again_ns == 0) return;
  const std::uint64_t now = now_ns();
  if (now < run.open_again_ns) return;
  GpuGroup& group = *gpus_of(*run.communicator);
  if (run.stopped_ns == 0 && plane_.has_left(group)) {
    look_at(run);  // now what was told is all that will be
    if (run.open == bit(static_cast<std::uint32_t>(group.members.size())) - 1)
      return launch_again(run);
  }
  if (run.doubted) plane_.withdraw(group, 0);  // all or nothing: what runs goes on
  plane_.open(group, group.running);
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
    const Status health = plane_.launcher(group.members[rank]).health();
    if (health) continue;
    // Nothing runs there any more, and nothing will.
    run.open &= ~bit(rank);
    run.failure = Failure::from(health.error());
    run.failure.culprit = static_cast<Rank>(rank);
    log::error("rank {}'s GPU has failed: {}", rank, health.error().message);
  }
  if (run.open == 0 || !plane_.has_left(group)) return;
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
      const Status aborted = plane_.launcher(member).abort(member.scratch.data());
      if (!aborted)
        log::error("rank {}'s kernel cannot be stopped: {}", member.rank, aborted.error().message);
    }
  }
}

void GpuExecutor::drain() {
  const std::uint64_t until = now_ns() + kDrainNs;
  while (now_ns() < until && (start_next() || !idle())) {
    if (!reap()) ::sched_yield();
  }
  if (!idle())
    log::error("{} operations on GPUs did not end when they were stopped", running_.size());
}

}  // namespace arcomm
