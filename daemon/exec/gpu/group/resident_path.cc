#include "daemon/exec/gpu/group/resident_path.h"

#include <sched.h>

#include "daemon/exec/clock.h"
#include "kernels/resident/grid.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm {
namespace {

static_assert(kResidentMembers == kMaxDeviceMembers, "whose fair share control deals out");

ResidentPlan resident_plan(const PersistentPlan& plan) {
  return {.send = plan.send,
          .recv = plan.recv,
          .count = plan.signature.send_count,
          .timeout_ns = plan.timeout_ns,
          .dtype = plan.signature.dtype,
          .op = plan.signature.op,
          .codec = plan.signature.codec,
          .collective = plan.signature.collective};
}

}  // namespace

Status ResidentPath::join(GpuGroup& group) {
  ResidentMember joining;
  joining.ranks = static_cast<std::uint32_t>(group.members.size());
  for (const GpuMember& member : group.members)
    joining.scratch[member.rank] = member.resident_scratch.data();
  for (GpuMember& member : group.members) {
    joining.mailbox = member.device_mailbox();
    joining.rank = static_cast<std::uint32_t>(member.rank);
    joining.number = member.done;
    Result<std::uint32_t> slot = member.grid().add_member(joining);
    if (!slot) return std::move(slot).error();
    member.slot = *slot;
  }
  return {};
}

void ResidentPath::drop_slot(GpuMember& member) {
  if (member.slot == kNoSlot) return;
  const std::uint32_t done = member.grid().status(member.slot).done;
  member.engine->operations_elsewhere += static_cast<std::uint32_t>(done - member.done);
  member.done = done;
  // Else it goes with the communicator.
  if (member.engine->remove_member(member.slot)) member.slot = kNoSlot;
}

Status ResidentPath::retire(GpuGroup& group, Rank rank) {
  GpuMember& member = group.member(rank);
  if (member.slot == kNoSlot) return {};
  if (!group.closed) wait_for_operations(member);
  const Done why{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::RemoteAborted),
                 .culprit_rank = static_cast<std::int16_t>(rank)};
  ARC_RETURN_IF_ERROR(member.grid().abort_member(member.slot, why));
  return quiescer_.quiesced([&] { drop_slot(member); });
}

void ResidentPath::wait_for_operations(GpuMember& member) {
  const std::uint64_t until = now_ns() + kMomentNs;
  while (true) {
    const ResidentStatus status = member.grid().status(member.slot);
    if (status.failed.code != 0 || status.done == member.doorbells.resident_posted()) return;
    if (!member.grid().running()) member.engine->resume();
    if (now_ns() >= until) return;
    ::sched_yield();
  }
}

Status ResidentPath::set_plan(PlanId id, const GpuMember& member, const PersistentPlan& plan) {
  if (member.slot == kNoSlot) return {};  // closed: nothing starts any more
  return member.grid().set_plan(id.index, member.slot, resident_plan(plan));
}

Status ResidentPath::clear_plan(PlanId id, const PersistentPlan& plan, GpuEngine& engine,
                                GpuGroup* group, Rank rank) {
  GpuMember* member = group == nullptr ? nullptr : &group->member(rank);
  // In any case: whoever gets the member's place must not find its plans there.
  if (member == nullptr || member->slot == kNoSlot) return engine.grid().clear_plan(id.index);
  if (!group->closed) wait_for_operations(*member);
  Status cleared;
  const Status quiesced = quiescer_.quiesced([&] {
    // Of a closed communicator nothing goes on: its places in the grids go with this quiescing.
    Result<bool> begun = false;
    if (!group->closed) begun = member->grid().has_begun(member->slot, resident_plan(plan));
    if (!begun) {
      cleared = std::move(begun).error();
    } else if (*begun) {
      cleared = error(ErrorCode::FailedPrecondition, Reason::BadValue, "plan ", id,
                      " cannot be destroyed: rank ", rank, " has started ",
                      member->doorbells.resident_posted(), " operations and ",
                      member->grid().status(member->slot).done,
                      " have ended; wait for the stream, or abort the communicator, first");
    } else {
      cleared = member->grid().clear_plan(id.index);
    }
  });
  ARC_RETURN_IF_ERROR(quiesced);
  return cleared;
}

}  // namespace arcomm
