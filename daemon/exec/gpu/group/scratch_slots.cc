#include "daemon/exec/gpu/group/scratch_slots.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/launch/cuda_scratch.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kTakeNs = 10'000'000;  // of a turn: the driver's calls for each rank

}  // namespace

void ScratchSlots::want(GpuGroup& group, const Signature& signature) {
  if (group.slots != GpuGroup::Slots::None || !needs_slots(group.launches, signature)) return;
  group.slots = GpuGroup::Slots::Wanted;
  is_wanted_ = true;
}

void ScratchSlots::tend(std::uint64_t now_ns) {
  if (!is_wanted_ || now_ns < again_ns_) return;
  const auto is_waiting = [](const GpuGroup* group) {
    return group->slots == GpuGroup::Slots::Wanted && !group->closed;
  };
  is_wanted_ = std::ranges::any_of(groups_, is_waiting);
  if (!is_wanted_) return;
  const QuiesceGuard guard(quiescer_);
  if (!guard.status()) {
    put_off_ns_ = std::clamp(2 * put_off_ns_, kAgainNs, kLongestAgainNs);
    again_ns_ = now_ns + put_off_ns_;
    return;
  }
  again_ns_ = put_off_ns_ = 0;
  for (GpuGroup* group : groups_) {
    if (is_waiting(group) && !take(*group)) return;
  }
}

bool ScratchSlots::take(GpuGroup& group) {
  const std::uint64_t bytes = cuda_scratch_bytes(static_cast<std::uint32_t>(group.members.size()));
  if (std::string why = find_hindrance(group, bytes); !why.empty()) {
    refuse(group, std::move(why));
    return true;
  }
  const std::uint64_t until = turn_.until_ns(now_ns(), kTakeNs);
  for (GpuMember& member : group.members) {
    if (member.scratch.bytes() >= bytes) continue;
    if (now_ns() >= until) return false;
    const Status grown = member.scratch.grow(bytes);
    if (grown) continue;
    refuse(group, member.engine->name() + ": " + grown.error().message);
    return true;
  }
  group.slots = GpuGroup::Slots::Here;
  log::debug("a communicator of {} GPUs has slots: {} bytes of scratch on each",
             group.members.size(), group.members.front().scratch.bytes());
  return true;
}

std::string ScratchSlots::find_hindrance(const GpuGroup& group, std::uint64_t bytes) const {
  for (const GpuMember& member : group.members) {
    std::uint64_t others = 0;
    for (const GpuGroup* other : groups_) {
      if (other == &group) continue;
      for (const GpuMember& its : other->members) {
        if (its.engine == member.engine && its.scratch) others += its.scratch.bytes();
      }
    }
    if (others + bytes <= limit_bytes_) continue;
    return "gpu.scratch_bytes is " + std::to_string(limit_bytes_) +
           ", of which other communicators have " + std::to_string(others) + " on " +
           member.engine->name() + ", and this one would need " + std::to_string(bytes);
  }
  return {};
}

void ScratchSlots::refuse(GpuGroup& group, std::string why) {
  // Some ranks' slots alone are of no use.
  for (GpuMember& member : group.members) member.scratch.cut_back();
  group.slots = GpuGroup::Slots::Refused;
  group.why_no_slots = std::move(why);
  log::warn("a communicator runs its largest operations without slots, and so slower: {}",
            group.why_no_slots);
}

}  // namespace arcomm
