#include "daemon/exec/gpu/group/in_stream_offer.h"

#include <algorithm>
#include <utility>

#include "daemon/plan/in_stream_share.h"

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
      return rank_text(rank.rank) + "'s process has ARCOMM_POST=memops set";
    case InStreamHindrance::KeptForOthers:
      return "the user of " + rank_text(rank.rank) + " has all that is in-stream on " +
             rank.device + ", and what is left is kept for other users";
  }
  return rank_text(rank.rank) + "'s process says that it cannot";
}

// SMs of the member's GPU that other communicators' in-stream operations may fill.
InStreamTaken taken_of(const GpuMember& member, std::span<GpuGroup* const> others) {
  InStreamTaken taken;
  for (const GpuGroup* other : others) {
    const auto is_here = [&](const GpuMember& its) { return its.engine == member.engine; };
    if (other->closed || std::ranges::none_of(other->members, is_here)) continue;
    taken.add(other->in_stream_blocks, other->in_tiny_share);
  }
  return taken;
}

std::string sms_text(const GpuMember& member, InStreamTaken taken) {
  const std::string name = member.engine->name();
  const std::string sms = std::to_string(member.engine->hardware().sms);
  if (taken == InStreamTaken{}) return name + " has " + sms + " SMs";
  return "other communicators have " + std::to_string(taken.large + taken.tiny) + " of the " + sms +
         " SMs of " + name;
}

// The least that any of its GPUs has for one more, and `most` at most: by it all go.
InStreamOffer least_share(const GpuGroup& group, std::span<GpuGroup* const> others,
                          std::uint32_t communicators, std::uint32_t most, bool tiny) {
  InStreamOffer offer{.blocks = most, .tiny = tiny, .why_not = {}};
  for (const GpuMember& member : group.members) {
    const InStreamTaken taken = taken_of(member, others);
    const InStreamShares shares(member.engine->hardware().sms, communicators);
    const std::uint32_t share = tiny ? shares.next_tiny(taken) : shares.next(taken, most);
    if (share >= offer.blocks) continue;
    offer.blocks = share;
    offer.why_not = sms_text(member, taken);
  }
  return offer;
}

// "" where lines of 128 bytes arrive whole between all of them.
std::string torn_pair(const GpuGroup& group, const PeerLines& lines) {
  for (const GpuMember& writer : group.members) {
    for (const GpuMember& reader : group.members) {
      if (lines.arrive_whole(*writer.engine, *reader.engine)) continue;
      return "stores of 128 bytes from " + writer.engine->name() + " to " + reader.engine->name() +
             " are not known to arrive whole";
    }
  }
  return {};
}

}  // namespace

InStreamOffer offer_in_stream(const GpuGroup& group, const CommunicatorSpec& spec,
                              std::span<GpuGroup* const> others, const PeerLines& lines,
                              std::uint32_t communicators) {
  const auto none = [](std::string why) { return InStreamOffer{.why_not = std::move(why)}; };
  if (group.members.size() > kMaxGpuRanks)
    return none("in-stream kernels serve " + std::to_string(kMaxGpuRanks) + " ranks at most");
  for (const RankSpec& rank : spec.ranks) {
    if (std::string hindrance = hindrance_of(rank); !hindrance.empty())
      return none(std::move(hindrance));
  }
  for (const GpuMember& member : group.members) {
    const std::string name = member.engine->name();
    for (const RankSpec& rank : spec.ranks) {
      if (std::ranges::find(rank.visible_gpus, name) != rank.visible_gpus.end()) continue;
      return none(rank_text(rank.rank) + "'s process does not see " + name + ", the GPU of " +
                  rank_text(member.rank));
    }
  }
  const bool is_bound = spec.most_sms != 0 && spec.most_sms < kMaxInStreamBlocks;
  const std::uint32_t most = is_bound ? spec.most_sms : kMaxInStreamBlocks;
  InStreamOffer offer = least_share(group, others, communicators, most, false);
  const std::string more = "; gpu.in_stream_communicators keeps some for more";
  if (offer.blocks == 0) {
    offer = least_share(group, others, communicators, most, true);
    if (offer.blocks == 0) return none(offer.why_not + more);
  }
  if (is_bound && offer.blocks == most) {
    offer.why_not = "its ranks ask for " + std::to_string(most) + " SMs at most";
  } else if (!offer.why_not.empty()) {
    offer.why_not += ", which leaves " + std::to_string(offer.blocks) + " for this one";
    if (offer.tiny)
      offer.why_not +=
          ", up to " + std::to_string(most_bytes_of_tiny_share(offer.blocks) / 1024) + " KB" + more;
  }
  if (const std::string torn = torn_pair(group, lines); !torn.empty())
    offer.why_not += (offer.why_not.empty() ? "" : "; ") + torn;
  return offer;
}

}  // namespace arcomm
