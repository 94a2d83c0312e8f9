#include "daemon/exec/gpu_executor.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cinttypes>

#include "daemon/exec/clock.h"
#include "daemon/session/session.h"
#include "daemon/telemetry/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kDrainNs = 5'000'000'000;
// What was stopped ends in microseconds: a GPU that takes longer is asked whether it still works.
constexpr std::uint64_t kStopNs = 100'000'000;

constexpr std::uint64_t bit(std::uint32_t rank) {
  return std::uint64_t{1} << rank;
}

struct Band {
  std::uint32_t ranks;  // up to
  std::uint64_t from_bytes;
  CudaAlgorithm algorithm;
};

// The last row that fits. Measured on H200: see the GPU table in README.md.
constexpr std::array kBands = {
    Band{1, 0, CudaAlgorithm::Alone},
    Band{2, 0, CudaAlgorithm::Stream},
    Band{kMaxCudaRanks, 0, CudaAlgorithm::TwoShotDirect},
    Band{kMaxCudaRanks, 16ull << 20, CudaAlgorithm::Stream},
};

std::uint64_t done_word(const Operation& operation) {
  return to_word(Done{.number = static_cast<std::uint32_t>(operation.ticket)});
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

CudaAlgorithm choose_algorithm(std::uint64_t bytes, std::uint32_t ranks) {
  CudaAlgorithm chosen = CudaAlgorithm::TwoShotDirect;
  std::uint32_t fits = 0;
  for (const Band& band : kBands) {
    if (ranks > band.ranks || bytes < band.from_bytes || (fits != 0 && band.ranks > fits)) continue;
    chosen = band.algorithm;
    fits = band.ranks;
  }
  return chosen;
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
  launch(run, arrival);
  if (run.open == 0) return communicators_.completed(communicator, run.failure);
  running_.push_back(run);
  // What was launched waits for a rank that was not: revoking stops it.
  if (!run.failure.ok()) communicators_.revoke(communicator, run.failure);
}

// All ranks' memory by the addresses at which the GPU `ordinal` finds it: see Memory::data_on.
void GpuExecutor::name_memory(const Arrival& arrival, int ordinal, CudaAllReduce& call) const {
  if (call.count == 0) return;
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    const Operation& operation = *arrival.operations[rank];
    const SessionId session = operation.session->id();
    const Buffer& send = *buffers_.find(session, operation.send_buffer);  // the operation holds it
    const Buffer& recv = *buffers_.find(session, operation.recv_buffer);
    call.send[rank] = send.base_on(ordinal) + (operation.send - send.base());
    call.recv[rank] = recv.base_on(ordinal) + (operation.recv - recv.base());
  }
}

void GpuExecutor::launch(Run& run, const Arrival& arrival) {
  GpuGroup& group = *gpus_of(*run.communicator);
  CudaAllReduce call;
  call.count = arrival.signature.count;
  call.dtype = arrival.signature.dtype;
  call.op = arrival.signature.op;
  call.ranks = static_cast<std::uint32_t>(group.members.size());
  const std::uint64_t now = now_ns();
  call.timeout_ns = arrival.deadline_ns > now ? arrival.deadline_ns - now : 1;
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank)
    call.scratch[rank] = group.members[rank].scratch.data();
  const CudaAlgorithm algorithm = choose_algorithm(arrival.signature.bytes(), call.ranks);
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    GpuMember& member = group.members[rank];
    RankWords& words = plane_.words(member);
    std::uint64_t* done = &member.device_mailbox()->lanes[static_cast<int>(Lane::Launched)].done;
    call.rank = rank;
    name_memory(arrival, gpus_[member.gpu]->ordinal(), call);
    call.done = done;
    call.done_word = done_word(*arrival.operations[rank]);
    call.host_done = &words.done;
    call.host_outcome = &words.outcome;
    // Nothing to reduce is nothing to launch.
    const Status launched = call.count == 0 ? plane_.launcher(member).store(done, call.done_word)
                                            : plane_.launcher(member).launch(algorithm, call);
    if (!launched) {
      run.failure = Failure::from(launched.error());
      run.failure.culprit = static_cast<Rank>(rank);
      log::error("an operation of {} bytes could not be launched for rank {}: {}",
                 arrival.signature.bytes(), rank, launched.error().message);
      return;
    }
    if (call.count != 0) run.open |= bit(rank);
  }
}

void GpuExecutor::look_at(Run& run) {
  GpuGroup& group = *gpus_of(*run.communicator);
  const Arrival& arrival = *run.communicator->board.head();
  for (std::uint32_t rank = 0; rank < group.members.size(); ++rank) {
    if ((run.open & bit(rank)) == 0) continue;
    RankWords& words = plane_.words(group.members[rank]);
    // Both acquire what the kernel wrote before: pairs with its release at system scope.
    const std::uint64_t done = __atomic_load_n(&words.done, __ATOMIC_ACQUIRE);
    if (done == done_word(*arrival.operations[rank])) {
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
    Run& run = running_[i];
    look_at(run);
    if (run.stopped_ns != 0) give_up_broken(run);
    if (run.open == 0) {
      const Run ended = run;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      communicators_.completed(*ended.communicator, ended.failure);
      found = true;
      continue;
    }
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
    log::error("rank {}'s GPU has failed: {}; restart arcommd", rank, health.error().message);
  }
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
