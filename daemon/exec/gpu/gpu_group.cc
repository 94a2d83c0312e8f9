// What the plane does for one communicator, from its mailboxes to its last resident operation.
#include "daemon/exec/gpu/gpu_group.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/gpu_plane.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/cuda_scratch.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kForgetNs = 100'000'000;
// Longer than the worker takes to hear of an in-stream operation that failed.
constexpr std::uint64_t kJustNowNs = 50'000'000;

ResidentPlan resident_plan(const PersistentPlan& plan) {
  return {.send = plan.send,
          .recv = plan.recv,
          .count = plan.signature.count,
          .timeout_ns = plan.timeout_ns,
          .dtype = plan.signature.dtype,
          .op = plan.signature.op};
}

}  // namespace

GpuGroup::~GpuGroup() {
  plane_.forget(*this);
}

Result<std::unique_ptr<GpuGroup>> GpuPlane::make_group(const CommunicatorSpec& seed,
                                                       std::uint64_t most_in_stream_bytes) {
  const std::size_t ranks = seed.ranks.size();
  if (ranks == 0 || ranks > kMaxGpuRanks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a communicator of GPUs has 1 to ",
                 kMaxGpuRanks, " ranks, not ", ranks);
  }
  const QuiesceGuard quiesce(*this);
  if (!quiesce.status()) return quiesce.status().error();
  auto group = std::make_unique<GpuGroup>(*this);
  group->members.resize(ranks);
  // First of all: a group that is given up half made is forgotten rank by rank.
  for (std::size_t i = 0; i < ranks; ++i) group->members[i].rank = static_cast<Rank>(i);
  for (std::size_t i = 0; i < ranks; ++i) {
    GpuMember& member = group->members[i];
    Result<std::size_t> gpu = find_gpu(seed.ranks[i].device);
    if (!gpu) return std::move(gpu).error();
    member.gpu = *gpu;
    member.session = seed.ranks[i].session;
    for (std::size_t other = 0; other < i; ++other) {
      if (group->members[other].gpu != member.gpu) continue;
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "ranks ", other, " and ", i,
                   " both name ", gpus_[member.gpu].device->name(),
                   ": each rank needs a GPU of its own");
    }
    ARC_RETURN_IF_ERROR(fill(member, static_cast<std::uint32_t>(ranks)));
  }
  group->abilities = abilities_of(*group);
  group->room = {.atomic_128b_stores = group->abilities.atomic_128b_stores,
                 .blocks = in_stream_blocks_for(*group, seed),
                 .most_bytes = most_in_stream_bytes};
  if (group->is_in_stream()) {
    for (GpuMember& member : group->members)
      ARC_RETURN_IF_ERROR(take(member, member.exchange,
                               in_stream_exchange_bytes(static_cast<std::uint32_t>(ranks))));
  }
  if (ranks > 1) ARC_RETURN_IF_ERROR(join_grids(*group));
  return group;
}

// Every rank's process must be able to map every rank's memory, and every GPU have room for the
// blocks of one communicator more. 0: there is none.
std::uint32_t GpuPlane::in_stream_blocks_for(const GpuGroup& group,
                                             const CommunicatorSpec& seed) const {
  const std::size_t ranks = group.members.size();
  if (!in_stream_ || !in_stream_image_ || ranks < 2 || ranks > kMaxGpuRanks) return 0;
  std::uint32_t blocks = kMaxInStreamBlocks;
  for (const GpuMember& member : group.members) {
    const std::string name = gpus_[member.gpu].device->name();
    const auto sees_it = [&](const RankSpec& rank) {
      return std::ranges::find(rank.visible_gpus, name) != rank.visible_gpus.end();
    };
    if (!std::ranges::all_of(seed.ranks, sees_it)) return 0;
    std::uint32_t taken = 0;
    for (const GpuGroup* other : groups_) {
      const auto is_here = [&](const GpuMember& its) { return its.gpu == member.gpu; };
      if (!other->closed && std::ranges::any_of(other->members, is_here))
        taken += other->room.blocks;
    }
    blocks = std::min(blocks, in_stream_share(gpus_[member.gpu].hardware.sms, taken));
  }
  return blocks;
}

Status GpuPlane::take(const GpuMember& member, Memory& place, std::uint64_t bytes) {
  Result<Memory> memory = gpus_[member.gpu].device->allocate(bytes);
  if (!memory) return std::move(memory).error();
  place = std::move(memory).value();
  return {};
}

Status GpuPlane::fill(GpuMember& member, std::uint32_t ranks) {
  Gpu& gpu = gpus_[member.gpu];
  ARC_RETURN_IF_ERROR(take(member, member.mailbox, kMailboxBytes));
  ARC_RETURN_IF_ERROR(take(member, member.scratch, cuda_scratch_bytes(ranks)));
  if (ranks > 1)
    ARC_RETURN_IF_ERROR(take(member, member.resident_scratch, gpu.hardware.resident_scratch_bytes));
  Result<DoorbellPage> doorbells = DoorbellPage::create();
  if (!doorbells) return std::move(doorbells).error();
  member.doorbells = std::move(doorbells).value();
  if (gpu.free_words.empty()) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, gpu.device->name(), " serves ",
                 gpu.hardware.launcher->words().size(),
                 " ranks, the most it can: free a communicator first");
  }
  member.words = gpu.free_words.back();
  gpu.free_words.pop_back();
  words(member) = RankCompletion{};
  if (!gpu.free_queues.empty()) {
    member.queue = gpu.free_queues.back();
    gpu.free_queues.pop_back();
  }
  return {};
}

Status GpuPlane::join_grids(GpuGroup& group) {
  ResidentMember joining;
  joining.ranks = static_cast<std::uint32_t>(group.members.size());
  for (const GpuMember& member : group.members)
    joining.scratch[member.rank] = member.resident_scratch.data();
  for (GpuMember& member : group.members) {
    joining.mailbox = member.device_mailbox();
    joining.rank = static_cast<std::uint32_t>(member.rank);
    Result<std::uint32_t> slot = grid(member).add_member(joining);
    if (!slot) return std::move(slot).error();
    member.slot = *slot;
  }
  return {};
}

void GpuPlane::adopt(Communicator& communicator, const std::vector<MemberId>& members,
                     std::unique_ptr<GpuGroup> group) {
  const std::uint64_t now = now_ns();
  for (std::size_t i = 0; i < members.size(); ++i) {
    group->members[i].id = members[i];
    group->members[i].changed_ns = now;
  }
  group->communicator = &communicator;
  groups_.push_back(group.get());
  communicator.extension = std::move(group);
}

void GpuPlane::forget(GpuGroup& group) {
  if (!withdraw(group, kForgetNs)) {
    log::error(
        "what was launched speculation for a communicator that is gone has not left: its memory "
        "is kept until it has");
  }
  std::erase(groups_, &group);
  group.prepared.drop_all();
  release_dropped_later(group);
  for (GpuMember& member : group.members) {
    DeferredRelease deferred;
    deferred.gpu = member.gpu;
    deferred.slot = member.slot;
    deferred.words = member.words;
    deferred.queue = member.queue;
    deferred.memory[0] = std::move(member.mailbox);
    deferred.memory[1] = std::move(member.scratch);
    deferred.memory[2] = std::move(member.resident_scratch);
    deferred.memory[3] = std::move(member.exchange);
    deferred.doorbells = std::move(member.doorbells);
    deferred_.push_back(std::move(deferred));
  }
  if (first_deferred_ns_ == 0) first_deferred_ns_ = now_ns();
}

Result<MailboxDescriptors> GpuPlane::export_mailbox(const GpuGroup& group, Rank rank) const {
  const GpuMember& member = group.members[static_cast<std::size_t>(rank)];
  MailboxDescriptors out{
      .descriptors = {}, .mailbox_bytes = member.mailbox.bytes(), .room = group.room};
  const auto add = [&out](Result<UniqueFd> descriptor) -> Status {
    if (!descriptor) return std::move(descriptor).error();
    out.descriptors.push_back(std::move(descriptor).value());
    return {};
  };
  ARC_RETURN_IF_ERROR(add(member.mailbox.export_fd()));
  ARC_RETURN_IF_ERROR(add(member.doorbells.export_fd()));
  if (!group.is_in_stream()) return out;
  ARC_RETURN_IF_ERROR(add(in_stream_image_.export_fd()));
  for (const GpuMember& each : group.members) ARC_RETURN_IF_ERROR(add(each.exchange.export_fd()));
  out.exchange_bytes = member.exchange.bytes();
  return out;
}

void GpuPlane::close(GpuGroup& group, Done why) {
  if (group.closed) return;
  group.closed = true;
  why.number = 0;
  if (why.code == 0) why.code = static_cast<std::uint8_t>(ErrorCode::Aborted);
  const auto tell = [this](const GpuMember& member, const Status& told) {
    if (told) return;
    log::error("{}: rank {} cannot be told that its communicator is over: {}",
               gpus_[member.gpu].device->name(), member.rank, told.error().message);
  };
  if (group.running.number != 0) open(group, group.running);
  withdraw(group, 0);
  for (GpuMember& member : group.members) {
    // What runs ends first, on all ranks: what is told afterwards may take its time.
    if (member.slot != kNoSlot) tell(member, grid(member).abort_member(member.slot, why));
  }
  for (GpuMember& member : group.members) {
    tell(member, launcher(member).store(&member.device_mailbox()->closed, to_word(why)));
  }
}

void GpuPlane::end_after_leave(GpuGroup& group, Rank rank, Done why) {
  const std::uint32_t done = group.member(rank).done;
  if (!group.ending || !reached(group.ends_after, done)) group.ends_after = done;
  if (!group.ending) group.ending = why;
}

Status GpuPlane::retire(GpuGroup& group, Rank rank) {
  GpuMember& member = group.member(rank);
  member.active = false;
  withdraw(group, kMomentNs);
  if (member.slot == kNoSlot) return {};
  if (!group.closed) wait_for_resident(member);
  const Done why{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::RemoteAborted),
                 .culprit_rank = static_cast<std::int16_t>(rank)};
  ARC_RETURN_IF_ERROR(grid(member).abort_member(member.slot, why));
  const QuiesceGuard quiesce(*this);
  if (!quiesce.status()) return quiesce.status().error();
  drop_slot(member);
  return {};
}

void GpuPlane::wait_for_resident(GpuMember& member) {
  const std::uint64_t until = now_ns() + kMomentNs;
  while (true) {
    const ResidentStatus status = grid(member).status(member.slot);
    if (status.failed.code != 0 || status.done == member.doorbells.resident_posted()) return;
    if (!grid(member).running()) resume(gpus_[member.gpu]);
    if (now_ns() >= until) return;
    ::sched_yield();
  }
}

Communicator* GpuPlane::find_crossing(const GpuGroup& group, Rank rank,
                                      std::uint64_t now_ns) const {
  // Where a deadline has passed the stream goes on with what is behind: so it counts where they
  // stood until just now.
  const auto stood_at = [now_ns](const GpuMember& member) -> std::optional<std::uint32_t> {
    if (now_ns >= member.in_stream_begun_ns + kStandingNs) return member.in_stream_begun;
    if (now_ns < member.in_stream_stood_until_ns + kJustNowNs) return member.in_stream_stood_at;
    return std::nullopt;
  };
  const auto was_ahead = [&](const GpuMember& one, const GpuMember& other) {
    const auto begun = stood_at(one), others = stood_at(other);
    return begun && others && *begun != *others && reached(*begun, *others);
  };
  const auto find = [](const GpuGroup& other, const GpuMember& wanted) {
    return std::ranges::find_if(other.members, [&](const GpuMember& member) {
      return member.session == wanted.session && member.gpu == wanted.gpu;
    });
  };
  const GpuMember& waited = group.members[static_cast<std::size_t>(rank)];
  for (const GpuMember& missing : group.members) {
    if (!was_ahead(waited, missing)) continue;
    for (const GpuGroup* other : groups_) {
      if (other == &group || other->closed) continue;
      const auto here = find(*other, waited), there = find(*other, missing);
      if (here != other->members.end() && there != other->members.end() && was_ahead(*there, *here))
        return other->communicator;
    }
  }
  return nullptr;
}

Status GpuPlane::set_plan(PlanId id, const GpuMember& member, const PersistentPlan& plan) {
  if (member.slot == kNoSlot) return {};  // closed: nothing starts any more
  return grid(member).set_plan(id.index, member.slot, resident_plan(plan));
}

Status GpuPlane::clear_plan(PlanId id, const PersistentPlan& plan, GpuGroup* group, Rank rank) {
  GpuMember* member = group == nullptr ? nullptr : &group->member(rank);
  if (member != nullptr && member->slot != kNoSlot) {
    if (!group->closed) wait_for_resident(*member);
    const QuiesceGuard quiesce(*this);
    if (!quiesce.status()) return quiesce.status().error();
    // Of a closed communicator nothing goes on: its places in the grids go with this quiesce.
    Result<bool> begun = false;
    if (!group->closed) begun = grid(*member).has_begun(member->slot, resident_plan(plan));
    if (!begun) return std::move(begun).error();
    if (*begun) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue, "plan ", id,
                   " cannot be destroyed: rank ", rank, " has started ",
                   member->doorbells.resident_posted(), " operations and ",
                   grid(*member).status(member->slot).done,
                   " have ended; wait for the stream, or abort the communicator, first");
    }
    return grid(*member).clear_plan(id.index);
  }
  // In any case: whoever gets the member's place must not find its plans there.
  return gpus_[static_cast<std::size_t>(plan.resident_on)].hardware.grid->clear_plan(id.index);
}

}  // namespace arcomm
