#include "daemon/exec/gpu/group/in_stream_waits.h"

#include <algorithm>
#include <optional>
#include <set>

namespace arcomm {
namespace {

// A rank that has begun no other in-stream operation for so long waits for somebody, or is idle.
constexpr std::uint64_t kStandingNs = 10'000'000;
// Longer than the worker takes to hear of an in-stream operation that failed.
constexpr std::uint64_t kJustNowNs = 50'000'000;

// Where a deadline has passed the stream goes on with what is behind: so it counts where they stood
// until just now.
std::optional<std::uint32_t> stood_at(const GpuMember& member, std::uint64_t now_ns) {
  if (now_ns >= member.in_stream_begun_ns + kStandingNs) return member.in_stream_begun;
  if (now_ns < member.in_stream_stood_until_ns + kJustNowNs) return member.in_stream_stood_at;
  return std::nullopt;
}

bool was_ahead(const GpuMember& one, const GpuMember& other, std::uint64_t now_ns) {
  const auto begun = stood_at(one, now_ns), others = stood_at(other, now_ns);
  return begun && others && *begun != *others && reached(*begun, *others);
}

bool is_uneven(const GpuGroup& group) {
  return std::ranges::any_of(group.members, [&](const GpuMember& member) {
    return member.in_stream_begun != group.members.front().in_stream_begun;
  });
}

// Nobody in it waits, nor did until just now.
bool is_over(const GpuGroup& group, std::uint64_t now_ns) {
  return group.closed || (!is_uneven(group) &&
                          std::ranges::all_of(group.members, [now_ns](const GpuMember& member) {
                            return now_ns >= member.in_stream_begun_ns + kStandingNs &&
                                   now_ns >= member.in_stream_stood_until_ns + kJustNowNs;
                          }));
}

}  // namespace

void InStreamWaits::note(GpuGroup& group, GpuMember& member, std::uint32_t begun,
                         std::uint64_t now_ns) {
  if (now_ns >= member.in_stream_begun_ns + kStandingNs) {
    member.in_stream_stood_at = member.in_stream_begun;
    member.in_stream_stood_until_ns = now_ns;
  }
  member.in_stream_begun = begun;
  member.in_stream_begun_ns = now_ns;
  if (group.waits_are_indexed || !is_uneven(group)) return;
  group.waits_are_indexed = true;
  for (const GpuMember& each : group.members) waiting_[each.session].push_back(&group);
}

void InStreamWaits::forget(GpuGroup& group) {
  GpuGroup* const one[] = {&group};
  if (group.waits_are_indexed) drop(one);
}

void InStreamWaits::drop(std::span<GpuGroup* const> over) {
  std::set<SessionId> sessions;
  for (GpuGroup* group : over) {
    group->waits_are_indexed = false;
    for (const GpuMember& member : group->members) sessions.insert(member.session);
  }
  for (const SessionId session : sessions) {
    const auto found = waiting_.find(session);
    if (found == waiting_.end()) continue;
    std::erase_if(found->second, [](const GpuGroup* group) { return !group->waits_are_indexed; });
    if (found->second.empty()) waiting_.erase(found);
  }
}

GpuGroup* InStreamWaits::find_crossing(const GpuGroup& group, Rank rank, std::uint64_t now_ns) {
  const auto find = [](const GpuGroup& other, const GpuMember& wanted) {
    return std::ranges::find_if(other.members, [&](const GpuMember& member) {
      return member.session == wanted.session && member.engine == wanted.engine;
    });
  };
  const GpuMember& waited = group.member(rank);
  std::vector<GpuGroup*> over;
  GpuGroup* crossing = nullptr;
  for (const GpuMember& missing : group.members) {
    if (crossing != nullptr || !was_ahead(waited, missing, now_ns)) continue;
    const auto found = waiting_.find(missing.session);
    if (found == waiting_.end()) continue;
    for (GpuGroup* other : found->second) {
      ++looked_at_;
      if (is_over(*other, now_ns)) {
        over.push_back(other);
        continue;
      }
      if (other == &group || other->closed) continue;
      const auto here = find(*other, waited), there = find(*other, missing);
      if (here == other->members.end() || there == other->members.end() ||
          !was_ahead(*there, *here, now_ns))
        continue;
      crossing = other;
      break;
    }
  }
  drop(over);
  return crossing;
}

std::size_t InStreamWaits::indexed() const {
  std::size_t count = 0;
  for (const auto& [session, groups] : waiting_) count += groups.size();
  return count;
}

}  // namespace arcomm
