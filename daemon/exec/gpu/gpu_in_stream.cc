// Whether a communicator may be in-stream, on how many SMs, and what stands in the way.
#include <algorithm>
#include <string>

#include "daemon/exec/gpu/gpu_plane.h"
#include "daemon/plan/launch_table_builder.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

std::string rank_text(Rank rank) {
  return "rank " + std::to_string(rank);
}

// "" where the rank's process can launch what this daemon hands over.
std::string hindrance_of(const RankSpec& rank) {
  if (rank.in_stream_abi != kInStreamAbi) {
    return rank_text(rank.rank) + "'s library knows in-stream kernels of version " +
           std::to_string(rank.in_stream_abi) + ", this daemon has version " +
           std::to_string(kInStreamAbi);
  }
  switch (rank.in_stream_hindrance) {
    case InStreamHindrance::None:
      return {};
    case InStreamHindrance::SmLimit:
      return "MPS gives " + rank_text(rank.rank) +
             "'s process a part of the SMs (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)";
    case InStreamHindrance::PostsByMemory:
      return rank_text(rank.rank) + "'s process has ARCOMM_POST=memory set";
  }
  return rank_text(rank.rank) + "'s process says that it cannot";
}

}  // namespace

// Every rank's process must be able to map every rank's memory, and every GPU have room for the
// blocks of one communicator more. 0: nothing is in-stream.
std::uint32_t GpuPlane::in_stream_blocks_for(const GpuGroup& group, const CommunicatorSpec& seed,
                                             std::string& why_not) const {
  const auto none = [&why_not](std::string why) {
    why_not = std::move(why);
    return 0U;
  };
  const std::size_t ranks = group.members.size();
  if (ranks < 2) return 0;
  if (!in_stream_) return none("gpu.in_stream is off");
  if (!in_stream_image_) return none("this daemon has no in-stream kernels for these GPUs");
  if (ranks > kMaxInStreamRanks)
    return none("in-stream kernels serve " + std::to_string(kMaxInStreamRanks) + " ranks at most");
  for (const RankSpec& rank : seed.ranks) {
    if (std::string hindrance = hindrance_of(rank); !hindrance.empty())
      return none(std::move(hindrance));
  }
  std::uint32_t blocks = kMaxInStreamBlocks;
  for (const GpuMember& member : group.members) {
    const Gpu& gpu = gpus_[member.gpu];
    const std::string name = gpu.device->name();
    for (const RankSpec& rank : seed.ranks) {
      if (std::ranges::find(rank.visible_gpus, name) != rank.visible_gpus.end()) continue;
      return none(rank_text(rank.rank) + "'s process does not see " + name + ", the GPU of " +
                  rank_text(member.rank));
    }
    std::uint32_t taken = 0;
    for (const GpuGroup* other : groups_) {
      const auto is_here = [&](const GpuMember& its) { return its.gpu == member.gpu; };
      if (!other->closed && std::ranges::any_of(other->members, is_here))
        taken += other->in_stream_blocks;
    }
    const std::uint32_t share = in_stream_share(gpu.hardware.sms, taken);
    if (share < blocks) {
      blocks = share;
      why_not = taken == 0 ? name + " has " + std::to_string(gpu.hardware.sms) + " SMs"
                           : "other communicators have " + std::to_string(taken) + " of the " +
                                 std::to_string(gpu.hardware.sms) + " SMs of " + name;
    }
  }
  if (blocks == 0) return 0;
  if (!why_not.empty()) why_not += ", which leaves " + std::to_string(blocks) + " for this one";
  for (const GpuMember& writer : group.members) {
    for (const GpuMember& reader : group.members) {
      if (atomic_128b_stores_[writer.gpu * gpus_.size() + reader.gpu]) continue;
      why_not += (why_not.empty() ? "" : "; ") + std::string("stores of 128 bytes from ") +
                 gpus_[writer.gpu].device->name() + " to " + gpus_[reader.gpu].device->name() +
                 " are not known to arrive whole";
      return blocks;
    }
  }
  return blocks;
}

}  // namespace arcomm
