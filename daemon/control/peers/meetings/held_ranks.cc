#include "daemon/control/peers/meetings/held_ranks.h"

#include <algorithm>
#include <utility>

namespace arcomm {

void HeldRanks::hold(const UniqueIdBytes& unique_id, Held held) {
  if (held_.insert_or_assign(unique_id, std::move(held)).second) by_age_.push_back(unique_id);
  while (by_age_.size() > kMost) {
    held_.erase(by_age_.front());
    by_age_.pop_front();
  }
}

void HeldRanks::forget(const UniqueIdBytes& unique_id, std::uint64_t communicator) {
  const auto at = held_.find(unique_id);
  if (at == held_.end() || at->second.communicator != communicator) return;
  held_.erase(at);
  std::erase(by_age_, unique_id);
}

void HeldRanks::forget(PeerId lost) {
  std::erase_if(held_, [lost](const auto& one) {
    return std::ranges::any_of(
        one.second.members, [lost](const Member& member) { return member.peer.instance == lost; });
  });
  std::erase_if(by_age_, [this](const UniqueIdBytes& one) { return !held_.contains(one); });
}

std::optional<HeldRanks::Holder> HeldRanks::find(const UniqueIdBytes& unique_id, PeerId from,
                                                 const std::vector<Rank>& ranks) const {
  const auto at = held_.find(unique_id);
  if (at == held_.end()) return std::nullopt;
  for (const Member& member : at->second.members) {
    if (member.peer.instance == from) continue;
    for (const Rank rank : ranks) {
      if (std::ranges::find(member.ranks, rank) != member.ranks.end())
        return Holder{member.peer, rank, at->second.communicator, at->second.epoch};
    }
  }
  return std::nullopt;
}

}  // namespace arcomm
