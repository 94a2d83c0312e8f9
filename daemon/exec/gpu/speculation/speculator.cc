#include "daemon/exec/gpu/speculation/speculator.h"

#include <sched.h>

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/quiescer.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Communicators that may have something ahead on one GPU: of two that are called in opposite orders
// one finds room, of three perhaps none.
constexpr int kMostSpeculating = 2;
// A client may write its doorbell over the word that was to open its gate.
constexpr std::uint64_t kOpenGateAgainNs = 50'000;
// A gate gives up by itself so long after the daemon should have taken it back.
constexpr std::uint64_t kLateNs = 1'000'000'000;
constexpr std::uint64_t kGiveWayNs = 200'000;
constexpr std::uint32_t kPausedLaunches = 64;

bool share_a_gpu(const GpuGroup& one, const GpuGroup& other) {
  return std::any_of(one.members.begin(), one.members.end(), [&](const GpuMember& member) {
    return std::any_of(other.members.begin(), other.members.end(),
                       [&](const GpuMember& there) { return there.engine == member.engine; });
  });
}

bool is_busy(const GpuGroup& group) {
  const ArrivalBoard& board = group.communicator->board;
  return board.size() > board.failed();
}

// Has any rank called the first of those ahead, but not all?
bool is_begun(const GpuGroup& group) {
  const std::uint32_t number = group.speculation.launched.front().gate.number;
  const auto called =
      std::count_if(group.members.begin(), group.members.end(),
                    [&](const GpuMember& member) { return reached(member.taken, number); });
  return called != 0 && static_cast<std::size_t>(called) != group.members.size();
}

}  // namespace

void Speculator::use_lease(std::uint64_t lease_ns) {
  if (std::exchange(lease_ns_, lease_ns) == lease_ns) return;
  for (GpuGroup* group : groups_) {  // what is prepared has the old lifetime
    group->prepared.drop_all();
    deferred_.add(group->prepared.dropped(), *group);
  }
}

bool Speculator::may_speculate(const GpuGroup& group) const {
  const Speculation& speculation = group.speculation;
  if (lease_ns_ == 0 || group.closed || group.ending || group.members.size() < 2 ||
      group.must_start_over() || speculation.state == Speculation::State::Leaving ||
      speculation.state == Speculation::State::Ran ||
      speculation.launched.size() == Speculation::kMost)
    return false;
  for (const GpuMember& member : group.members) {
    if (member.queue == 0 || !member.active) return false;
  }
  return std::count_if(groups_.begin(), groups_.end(), [&](const GpuGroup* other) {
           return other != &group && share_a_gpu(group, *other) &&
                  (other->speculation.state != Speculation::State::None ||
                   other->running.number != 0);
         }) < kMostSpeculating;
}

void Speculator::begin(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm) {
  ++group.operations;
  ++group.gates;  // as the gates count themselves
  if (group.speculation.launched.empty()) group.speculation.begun_ns = 0;
  group.speculation.state = Speculation::State::Waiting;
  group.speculation.launched.push_back({gate, algorithm, now_ns()});
}

CudaGate Speculator::gate_of(const GpuGroup& group, const GpuMember& member,
                             const PlanTuple& plans) const {
  return {
      .doorbell = &member.device_mailbox()->paths[static_cast<int>(LaunchPath::Launched)].doorbell,
      .plan = plans[static_cast<std::size_t>(member.rank)].index,
      .identity = plans.identity,
      .parity = group.gates % 2,
      .lifetime_ns = lease_ns_ + kLateNs};
}

Status Speculator::launch(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm,
                          std::span<const CudaAllReduce> calls) {
  begin(group, gate, algorithm);
  for (GpuMember& member : group.members) {
    const auto rank = static_cast<std::size_t>(member.rank);
    ARC_RETURN_IF_ERROR(member.launcher().launch_behind(
        member.queue, gate_of(group, member, gate.plans), algorithm, calls[rank]));
  }
  return {};
}

Status Speculator::launch(GpuGroup& group, const LaunchGate& gate, CudaAlgorithm algorithm,
                          const PreparedParts& prepared) {
  begin(group, gate, algorithm);
  for (const std::unique_ptr<PreparedLaunch>& part : prepared)
    ARC_RETURN_IF_ERROR(part->launch(group.gates % 2));
  return {};
}

Result<PreparedParts> Speculator::prepare(Quiescer& quiescer, GpuGroup& group,
                                          const PlanTuple& plans, CudaAlgorithm algorithm,
                                          std::span<const CudaAllReduce> calls) {
  deferred_.add(group.prepared.dropped(), group);
  PreparedParts parts;
  Status made;
  const Status quiesced = quiescer.quiesced([&] {
    for (const GpuMember& member : group.members) {
      const auto rank = static_cast<std::size_t>(member.rank);
      Result<std::unique_ptr<PreparedLaunch>> part = member.launcher().prepare(
          member.queue, gate_of(group, member, plans), algorithm, calls[rank]);
      if (!part) {
        made = std::move(part).error();
        return;
      }
      parts.push_back(std::move(part).value());
    }
  });
  ARC_RETURN_IF_ERROR(quiesced);
  ARC_RETURN_IF_ERROR(made);
  return parts;
}

void Speculator::open(GpuGroup& group, const LaunchGate& gate) {
  for (GpuMember& member : group.members) {
    std::uint64_t* doorbell =
        &member.device_mailbox()->paths[static_cast<int>(LaunchPath::Launched)].doorbell;
    const Status opened = member.launcher().store(doorbell, gate.word(member.rank));
    if (opened) continue;
    log::error("{}: rank {}'s gate cannot be opened: {}", member.engine->name(), member.rank,
               opened.error().message);
  }
}

const GpuEngine* Speculator::find_busy(const GpuGroup& group) const {
  for (const GpuMember& member : group.members) {
    // A queue that answers with an error holds nothing up any more.
    const Result<bool> idle = member.launcher().idle(member.queue);
    if (idle && !*idle) return member.engine;
  }
  return nullptr;
}

bool Speculator::withdraw(GpuGroup& group, std::uint64_t budget_ns) {
  Speculation& speculation = group.speculation;
  if (speculation.state == Speculation::State::None || speculation.state == Speculation::State::Ran)
    return true;
  std::uint64_t now = now_ns();
  const std::uint64_t until = now + budget_ns;
  if (speculation.state == Speculation::State::Waiting) {
    speculation.state = Speculation::State::Leaving;
    counts_.misses += speculation.launched.size();
    for (GpuMember& member : group.members) {
      const Status told = member.launcher().cancel(member.scratch.data(), group.gates);
      if (!told) {
        log::error("{}: rank {}'s launch cannot be cancelled: {}", member.engine->name(),
                   member.rank, told.error().message);
      }
    }
    speculation.opened_ns = now;
  }
  while (!has_left(group)) {
    now = now_ns();
    // What runs before them may have been called at the host's doorbells only.
    if (group.running.number != 0 && now >= speculation.opened_ns + kOpenGateAgainNs) {
      open(group, group.running);
      speculation.opened_ns = now;
    }
    if (now >= until) return false;
    ::sched_yield();
  }
  const auto did_not_run = [&](const SpeculativeLaunch& speculative) {
    return !std::all_of(group.members.begin(), group.members.end(), [&](GpuMember& member) {
      const Done done = done_from(__atomic_load_n(&member.words().done, __ATOMIC_ACQUIRE));
      return reached(done.number, speculative.gate.number);
    });
  };
  std::erase_if(speculation.launched, did_not_run);
  speculation.state =
      speculation.launched.empty() ? Speculation::State::None : Speculation::State::Ran;
  if (!group.is_in_queues()) room_.leave(group.place);
  return true;
}

bool Speculator::make_room(const LaunchPlace& waiter) {
  bool any = false;
  for (GpuGroup* group : groups_) {
    if (group->speculation.state != Speculation::State::Waiting ||
        !LaunchRoom::is_in_the_way(group->place, waiter))
      continue;
    any |= withdraw(*group, 0);
    group->paused_launches = kPausedLaunches;
  }
  return any;
}

void Speculator::withdraw_all(TurnBudget& turn, std::uint64_t budget_ns) {
  for (GpuGroup* group : groups_) {
    if (group->speculation.state == Speculation::State::None) continue;
    withdraw(*group, static_cast<std::uint64_t>(turn.left(now_ns(), budget_ns).count()));
  }
}

void Speculator::look_at(GpuGroup& group, std::uint64_t now_ns) {
  switch (group.speculation.state) {
    case Speculation::State::None:
    case Speculation::State::Ran:
      return;
    case Speculation::State::Waiting:
      // Busy or not: its gates do not wait for ever.
      if (now_ns < group.speculation.launched.front().since_ns + lease_ns_) return;
      break;
    case Speculation::State::Leaving:
      break;
  }
  withdraw(group, 0);
}

void Speculator::make_way(std::uint64_t now_ns) {
  for (GpuGroup* group : groups_) {
    Speculation& speculation = group->speculation;
    if (speculation.state != Speculation::State::Waiting || !is_begun(*group)) continue;
    if (speculation.begun_ns == 0) speculation.begun_ns = now_ns;
    if (now_ns < speculation.begun_ns + kGiveWayNs) continue;
    const bool held_up = std::any_of(groups_.begin(), groups_.end(), [&](const GpuGroup* other) {
      return other != group && is_busy(*other) && share_a_gpu(*group, *other);
    });
    if (!held_up) continue;
    withdraw(*group, 0);
    group->paused_launches = kPausedLaunches;
  }
}

}  // namespace arcomm
