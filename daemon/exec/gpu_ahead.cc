// Launching before the call: what is put into the ranks' queues, and how it is got out again.
#include <sched.h>

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu_plane.h"
#include "daemon/telemetry/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

// Communicators that may have something ahead on one GPU: of two that are called in opposite orders
// one finds room, of three perhaps none.
constexpr int kMostArmed = 2;
// A client may have written its door over the word that was to open the queue.
constexpr std::uint64_t kOpenQueueAgainNs = 50'000;
constexpr std::uint64_t kGiveWayNs = 200'000;
constexpr std::uint32_t kRestLaunches = 64;

bool share_a_gpu(const GpuGroup& one, const GpuGroup& other) {
  return std::any_of(one.members.begin(), one.members.end(), [&](const GpuMember& member) {
    return std::any_of(other.members.begin(), other.members.end(),
                       [&](const GpuMember& there) { return there.gpu == member.gpu; });
  });
}

bool is_busy(const GpuGroup& group) {
  const ArrivalBoard& board = group.communicator->board;
  return board.size() > board.failed();
}

// Has any rank called it, but not all?
bool is_begun(const GpuGroup& group) {
  const auto called = std::count_if(
      group.members.begin(), group.members.end(),
      [&](const GpuMember& member) { return reached(member.taken, group.ahead.gate.number); });
  return called != 0 && static_cast<std::size_t>(called) != group.members.size();
}

}  // namespace

bool GpuPlane::may_arm(const GpuGroup& group) const {
  if (ahead_lease_ns_ == 0 || group.closed || group.ending || group.members.size() < 2 ||
      group.ahead.state != Ahead::State::None)
    return false;
  for (const GpuMember& member : group.members) {
    if (member.queue == 0 || !member.active) return false;
  }
  return std::count_if(groups_.begin(), groups_.end(), [&](const GpuGroup* other) {
           return other != &group && share_a_gpu(group, *other) &&
                  (other->ahead.state != Ahead::State::None || other->running.number != 0);
         }) < kMostArmed;
}

Status GpuPlane::arm(GpuGroup& group, const Gate& gate, CudaAlgorithm algorithm,
                     std::span<CudaAllReduce> calls) {
  Ahead& ahead = group.ahead;
  if (++group.armed_ever == 0) ++group.armed_ever;  // 0 would be: never
  ahead = {.state = Ahead::State::Waiting,
           .gate = gate,
           .algorithm = algorithm,
           .cancel_number = group.armed_ever,
           .since_ns = now_ns()};
  for (GpuMember& member : group.members) {
    CudaAllReduce& call = calls[static_cast<std::size_t>(member.rank)];
    call.cancel_number = ahead.cancel_number;
    std::uint64_t* door = &member.device_mailbox()->lanes[static_cast<int>(Lane::Launched)].door;
    ARC_RETURN_IF_ERROR(launcher(member).wait_for(member.queue, door, gate.word(member.rank)));
    ARC_RETURN_IF_ERROR(launcher(member).launch(member.queue, algorithm, call));
  }
  return {};
}

void GpuPlane::open(GpuGroup& group, const Gate& gate) {
  for (GpuMember& member : group.members) {
    std::uint64_t* door = &member.device_mailbox()->lanes[static_cast<int>(Lane::Launched)].door;
    const Status opened = launcher(member).store(door, gate.word(member.rank));
    if (opened) continue;
    log::error("{}: rank {}'s queue cannot be opened: {}", gpus_[member.gpu].device->name(),
               member.rank, opened.error().message);
  }
}

bool GpuPlane::has_left(const GpuGroup& group) {
  // A queue that answers with an error holds nothing up any more.
  return std::all_of(group.members.begin(), group.members.end(), [&](const GpuMember& member) {
    const Result<bool> idle = launcher(member).idle(member.queue);
    return !idle || *idle;
  });
}

bool GpuPlane::disarm(GpuGroup& group, std::uint64_t patience_ns) {
  Ahead& ahead = group.ahead;
  if (ahead.state == Ahead::State::None || ahead.state == Ahead::State::Ran) return true;
  std::uint64_t now = now_ns();
  const std::uint64_t until = now + patience_ns;
  if (ahead.state == Ahead::State::Waiting) {
    ahead.state = Ahead::State::Leaving;
    ++foresight.misses;
    // Before the gates, in each rank's order: what begins by them finds it.
    for (GpuMember& member : group.members) {
      const Status told = launcher(member).cancel(member.scratch.data(), ahead.cancel_number);
      if (!told) {
        log::error("{}: rank {}'s launch cannot be cancelled: {}", gpus_[member.gpu].device->name(),
                   member.rank, told.error().message);
      }
    }
    open(group, ahead.gate);
    ahead.opened_ns = now;
  }
  while (!has_left(group)) {
    now = now_ns();
    if (now >= ahead.opened_ns + kOpenQueueAgainNs) {
      // What runs before it may have been called at one door only, and all gates are one word.
      ahead.behind = !ahead.behind && group.running.number != 0;
      open(group, ahead.behind ? group.running : ahead.gate);
      ahead.opened_ns = now;
    }
    if (now >= until) return false;
    ::sched_yield();
  }
  const bool ran = std::all_of(group.members.begin(), group.members.end(), [&](GpuMember& member) {
    const Done done = done_from(__atomic_load_n(&words(member).done, __ATOMIC_ACQUIRE));
    return reached(done.number, ahead.gate.number);
  });
  ahead.state = ran ? Ahead::State::Ran : Ahead::State::None;
  return true;
}

void GpuPlane::stop_arming() {
  ahead_lease_ns_ = 0;
  for (GpuGroup* group : groups_) disarm(*group, kMomentNs);
}

void GpuPlane::look_ahead(GpuGroup& group, std::uint64_t now_ns) {
  switch (group.ahead.state) {
    case Ahead::State::None:
    case Ahead::State::Ran:
      return;
    case Ahead::State::Waiting:
      if (ahead_lease_ns_ != 0 && is_busy(group)) group.ahead.since_ns = now_ns;
      if (now_ns < group.ahead.since_ns + ahead_lease_ns_) return;
      break;
    case Ahead::State::Leaving:
      break;
  }
  disarm(group, 0);
}

void GpuPlane::clear_the_way(std::uint64_t now_ns) {
  for (GpuGroup* group : groups_) {
    Ahead& ahead = group->ahead;
    if (ahead.state != Ahead::State::Waiting || !is_begun(*group)) continue;
    if (ahead.begun_ns == 0) ahead.begun_ns = now_ns;
    if (now_ns < ahead.begun_ns + kGiveWayNs) continue;
    const bool held_up = std::any_of(groups_.begin(), groups_.end(), [&](const GpuGroup* other) {
      return other != group && is_busy(*other) && share_a_gpu(*group, *other);
    });
    if (!held_up) continue;
    disarm(*group, 0);
    group->rest_launches = kRestLaunches;
  }
}

}  // namespace arcomm
